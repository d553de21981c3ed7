//! The control socket: who connects, and requests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use host::rights::{Received, receive};
use rustix::io::Errno;
use rustix::net::{RecvFlags, ReturnFlags, SendFlags, SocketFlags, accept_with, send};
use rustix::process::{Uid, geteuid};

use crate::limits::{CABLE_FILES, CLIENTS_MAX, MESSAGE_BYTES};
use crate::wire::{Reply, Request};

/// The socket that listens, and those who have connected.
pub struct Control {
    listener: OwnedFd,
    clients: Vec<OwnedFd>,
    owner: Uid,
    buffer: Box<[u8]>,
}

/// What a client has to say.
pub enum Asked {
    /// Nothing now.
    Nothing,
    /// A request, with the descriptors that came with it.
    Request(Request, Vec<OwnedFd>),
    /// What is no request, for this reason.
    Wrong(String),
    /// It has gone.
    Gone,
}

impl Control {
    pub fn new(listener: OwnedFd) -> Self {
        let buffer = vec![0; MESSAGE_BYTES].into();
        Self { listener, clients: Vec::new(), owner: geteuid(), buffer }
    }

    /// What listens, if somebody more may connect.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        (self.clients.len() < CLIENTS_MAX).then(|| self.listener.as_fd())
    }

    pub fn clients(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.clients.iter().map(AsFd::as_fd)
    }

    /// Somebody has connected: only this user and root may.
    pub fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        if host::peer::is_of(&socket, self.owner) {
            self.clients.push(socket);
        }
    }

    /// What a client asks for.
    pub fn request(&mut self, client: usize) -> Asked {
        let Some(socket) = self.clients.get(client) else { return Asked::Gone };
        let (bytes, flags) = (&mut self.buffer[..], RecvFlags::DONTWAIT);
        let Received { bytes, files, flags } = match receive(socket, bytes, CABLE_FILES, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Asked::Nothing,
            Err(_) => return Asked::Gone,
        };
        match bytes {
            0 => Asked::Gone,
            _ if flags.contains(ReturnFlags::TRUNC) => {
                Asked::Wrong("the request is too long".to_owned())
            }
            count => match serde_json::from_slice(&self.buffer[..count]) {
                Ok(request) => Asked::Request(request, files),
                Err(error) => Asked::Wrong(error.to_string()),
            },
        }
    }

    /// Answer a client; whether it is still there. One that does not take its answers is not waited for.
    pub fn answer(&mut self, client: usize, reply: &Reply) -> bool {
        let text = serde_json::to_vec(reply).unwrap_or_default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.clients.get(client).is_some_and(|socket| send(socket, &text, flags).is_ok())
    }

    /// Forget clients, whose numbers are in order.
    pub fn forget(&mut self, gone: &[usize]) {
        for client in gone.iter().rev() {
            self.clients.remove(*client);
        }
    }
}
