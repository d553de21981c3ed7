//! Who is woken for answers.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use super::super::worker;
use super::*;
use crate::message::{Reply, Request};
use crate::ring;

/// Longer than a busy host takes for anything here.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server's other end, and its kernel's memory.
struct Domain {
    end: ring::End,
    memory: Arc<GuestMemoryMmap>,
}

impl Domain {
    fn new(place: &Place) -> Self {
        let Kernel { share, memory } = Kernel::new(&place.at(""), true);
        let (end, file, socket): (_, Arc<File>, OwnedFd) = ring::pair().unwrap();
        let theirs = ring::other_end(file.try_clone().unwrap(), socket).unwrap();
        worker::start(Arc::new(share), theirs).unwrap();
        Self { end, memory }
    }

    /// Ask for something that has one number for an argument.
    fn ask(&mut self, token: u64, opcode: u32, argument: u64, may_watch: bool) {
        let at = QUESTION + token * 0x100;
        let header = InHeader { len: 48, opcode, nodeid: ROOT, ..InHeader::default() };
        let question = [header.as_bytes(), argument.as_bytes()].concat();
        self.memory.write_slice(&question, GuestAddress(at)).unwrap();
        let answer = Range { address: ANSWER + token * 0x100, bytes: 0x100 };
        let request = Request { token, readable: 1, writable: 1 };
        let question = Range { address: at, bytes: question.len() as u64 };
        let message = [request.as_bytes(), question.as_bytes(), answer.as_bytes()].concat();
        let (writer, _, bell) = &mut self.end;
        assert!(writer.put(&message).unwrap());
        bell.let_watch(may_watch);
        bell.ring();
    }

    /// Sleep until woken; the tokens of the answers that there are then.
    fn wait(mut self) -> (Self, Vec<u64>) {
        let (done, woken) = mpsc::channel();
        std::thread::spawn(move || {
            self.end.2.wait();
            let (mut tokens, mut bytes) = (Vec::new(), Vec::new());
            while self.end.1.take(&mut bytes).unwrap() {
                tokens.push(Reply::read_from_bytes(&bytes).unwrap().token);
            }
            let _ = done.send((self, tokens));
        });
        woken.recv_timeout(PATIENCE).expect("somebody is told")
    }
}

#[test]
fn what_has_been_forgotten_is_told_before_the_server_sleeps() {
    let place = Place::new();
    let mut domain = Domain::new(&place);
    for may_watch in [false, true] {
        domain.end.2.set_asleep(true);
        domain.ask(1, opcode::FORGET, 1, may_watch);
        let tokens;
        (domain, tokens) = domain.wait();
        assert_eq!(tokens, [1]);
    }
}
