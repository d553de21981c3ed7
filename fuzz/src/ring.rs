//! What a domain does to the page of the store's ring that no kernel would.

use xen_fronts::store::{ANSWER_CONSUMER, ANSWER_PRODUCER, REQUEST_CONSUMER, ROOM, StorePage};
use xen_store::ring::Page;

/// Write a word of the page, at a multiple of four.
pub fn set(page: &mut StorePage, at: usize, value: u32) {
    // Most of what is there is bytes; the indices are what matters.
    let at = if at % 2 == 0 { REQUEST_CONSUMER + at / 2 % 8 * 4 } else { at / 2 % 1024 * 4 };
    page.store(at, value);
}

/// Put a message, with its header, whether there is room or not.
pub fn send(page: &mut StorePage, kind: u32, transaction: u32, payload: &[u8]) {
    let words = [kind, 1, transaction, payload.len() as u32];
    let header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    page.put_all(&header);
    page.put_all(&payload[..payload.len().min(ROOM as usize - header.len())]);
}

/// Take all answers, however many there are said to be.
pub fn consume(page: &mut StorePage) {
    page.store(ANSWER_CONSUMER, page.load(ANSWER_PRODUCER));
}
