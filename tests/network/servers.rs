//! Servers on the host's loopback interface. Each ends with the test's process.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Bytes that are not all alike.
pub fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Serves each connection with `serve`; its port.
fn listen(serve_one: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    serve(TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface"), serve_one)
}

fn serve(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    port
}

/// The same, at each of this host's addresses.
pub fn echo_for_all() -> u16 {
    serve(TcpListener::bind("0.0.0.0:0").expect("a port"), repeat)
}

/// The addresses of this host's interfaces, but for the loopback one.
pub fn own_addresses() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    let all = local.filter_map(|pair| pair[0].strip_prefix("|-- "));
    all.filter(|address| !address.starts_with("127.")).map(str::to_owned).collect()
}

/// Says what it hears, until the other side has said all.
pub fn echo() -> u16 {
    listen(repeat)
}

fn repeat(mut stream: TcpStream) {
    if let Ok(mut ear) = stream.try_clone() {
        let _ = std::io::copy(&mut ear, &mut stream);
    }
}

/// Says these bytes to whoever asks in HTTP, or has said all, and ends.
pub fn source(bytes: Vec<u8>) -> u16 {
    listen(move |mut stream| {
        let mut request = [0; 4096];
        if matches!(stream.read(&mut request), Ok(1..)) {
            let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n");
        }
        let _ = stream.write_all(&bytes);
    })
}

/// Hears everything to its end, and then says how many bytes that were. What it heard is received.
pub fn sink() -> (u16, Receiver<Vec<u8>>) {
    let (sender, heard) = channel();
    let port = listen(move |mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = writeln!(stream, "{}", all.len());
        let _ = stream.shutdown(Shutdown::Both);
        let _ = sender.send(all);
    });
    (port, heard)
}

/// Sends back each datagram.
pub fn datagram_echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port of the loopback interface");
    let port = socket.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..count], from);
        }
    });
    port
}

/// A port on which nobody listens.
pub fn nobody() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
    listener.local_addr().expect("it is bound").port()
}
