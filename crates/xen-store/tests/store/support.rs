//! A client of the store that speaks the protocol.

use xen_store::{ClientId, Store};

/// A message: its type, request, transaction and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: u32,
    pub request: u32,
    pub transaction: u32,
    pub payload: Vec<u8>,
}

impl Message {
    pub fn bytes(&self) -> Vec<u8> {
        let words = [self.kind, self.request, self.transaction, self.payload.len() as u32];
        let header = words.iter().flat_map(|word| word.to_le_bytes());
        header.chain(self.payload.iter().copied()).collect()
    }
}

/// Whole messages in bytes.
pub fn parse(bytes: &[u8]) -> Vec<Message> {
    let (mut messages, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let end = 16 + word(12) as usize;
        let payload = rest[16..end].to_vec();
        messages.push(Message { kind: word(0), request: word(4), transaction: word(8), payload });
        rest = &rest[end..];
    }
    messages
}

/// All that waits for a client.
pub fn drain(store: &mut Store, client: ClientId) -> Vec<Message> {
    let mut bytes = Vec::new();
    let mut some = [0; 100];
    loop {
        let count = store.send(client, &mut some);
        if count == 0 {
            return parse(&bytes);
        }
        bytes.extend_from_slice(&some[..count]);
    }
}

/// A request's answers and events.
pub fn ask(
    store: &mut Store,
    client: ClientId,
    kind: u32,
    transaction: u32,
    payload: &[u8],
) -> Vec<Message> {
    let message = Message { kind, request: 77, transaction, payload: payload.to_vec() };
    let bytes = message.bytes();
    assert_eq!(store.receive(client, &bytes), Ok(bytes.len()));
    drain(store, client)
}
