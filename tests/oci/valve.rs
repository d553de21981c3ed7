//! What stands before a registry, and while it is shut holds back half of each blob: whoever pulls is in the middle of
//! it for as long as a test wants.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// See above. Connections end with this, or with those at their ends.
pub struct Valve {
    /// `ADDRESS:PORT`, for names of images.
    pub address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_shut: AtomicBool,
    /// How many blobs have been held back.
    held: AtomicUsize,
    is_over: AtomicBool,
}

impl Valve {
    /// An open one before the registry at `behind`.
    pub fn before(behind: &str) -> Valve {
        let behind: SocketAddr = behind.parse().expect("an address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there are ports");
        let address = listener.local_addr().expect("it has one").to_string();
        let state = Arc::new(State::default());
        let valve = Valve { address, state: Arc::clone(&state) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if state.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // Who cannot be connected is not answered.
                let Ok(server) = TcpStream::connect(behind) else { return };
                connect(client, server, &state);
            }
        });
        valve
    }

    /// Holds back what begins from now on, or lets go.
    pub fn set_shut(&self, is_shut: bool) {
        self.state.is_shut.store(is_shut, Ordering::SeqCst);
    }

    /// How many blobs have been held back so far.
    pub fn held(&self) -> usize {
        self.state.held.load(Ordering::SeqCst)
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // It listens once more.
        let _ = TcpStream::connect(&self.address);
    }
}

/// Has two threads pass on what both say.
fn connect(client: TcpStream, server: TcpStream, state: &Arc<State>) {
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let asks_blob = Arc::new(AtomicBool::new(false));
    let (asks, state) = (Arc::clone(&asks_blob), Arc::clone(state));
    thread::spawn(move || {
        pass(from_client, server, |bytes, to| {
            let is_blob = bytes.windows(7).any(|word| word == b"/blobs/");
            asks.store(is_blob, Ordering::SeqCst);
            to.write_all(bytes)
        });
    });
    thread::spawn(move || {
        pass(from_server, client, |bytes, to| {
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            to.write_all(first)?;
            if asks_blob.load(Ordering::SeqCst) && state.is_shut.load(Ordering::SeqCst) {
                state.held.fetch_add(1, Ordering::SeqCst);
                let is_held = || state.is_shut.load(Ordering::SeqCst);
                while is_held() && !state.is_over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(10));
                }
            }
            to.write_all(rest)
        });
    });
}

/// Passes on what comes, until one of both has ended.
fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    mut each: impl FnMut(&[u8], &mut TcpStream) -> std::io::Result<()>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if each(&bytes[..count], &mut to).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
