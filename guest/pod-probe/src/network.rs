//! A pod's network as its programs have it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::{Failure, failed};

/// How long it waits for anybody.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long it waits for one datagram, which may be lost.
const DATAGRAM_PATIENCE: Duration = Duration::from_secs(1);

/// How often it sends one.
const DATAGRAMS: u32 = 60;

/// Sends standard input, and says what it hears meanwhile and afterwards.
pub fn ask(address: &str) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address).map_err(failed("connect"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("a limit"))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed("a limit"))?;
    let mut mouth = stream.try_clone().map_err(failed("a copy"))?;
    let said = std::thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut mouth)?;
        mouth.shutdown(Shutdown::Write)
    });
    io::copy(&mut stream, &mut io::stdout()).map_err(failed("hear"))?;
    said.join().map_err(|_| "say".to_owned())?.map_err(failed("say"))
}

/// Sends a text until it is answered.
pub fn ask_udp(address: &str, text: &str) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed("bind"))?;
    socket.connect(address).map_err(failed("connect"))?;
    socket.set_read_timeout(Some(DATAGRAM_PATIENCE)).map_err(failed("a limit"))?;
    let mut buffer = [0; 1 << 16];
    for _ in 0..DATAGRAMS {
        let heard = socket.send(text.as_bytes()).and_then(|_| socket.recv(&mut buffer));
        match heard {
            Ok(count) => {
                return io::stdout().write_all(&buffer[..count]).map_err(failed("say"));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed("hear")(error)),
        }
    }
    Err("no answer".to_owned())
}

/// Repeats what it hears.
pub fn serve(port: &str) -> Result<(), Failure> {
    let port: u16 = port.parse().map_err(|_| "no port".to_owned())?;
    let everywhere = (Ipv4Addr::UNSPECIFIED, port);
    let listener = TcpListener::bind(everywhere).map_err(failed("bind"))?;
    let socket = UdpSocket::bind(everywhere).map_err(failed("bind"))?;
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..count], from);
        }
    });
    println!("serving");
    io::stdout().flush().map_err(failed("standard output"))?;
    for mut stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).and_then(|_| stream.write_all(&all))
        });
    }
    Ok(())
}

/// Says `yes` or `no`.
#[expect(unsafe_code, reason = "a request that no safe crate has")]
pub fn carrier() -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("bind"))?;
    // SAFETY: zeros are such a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"eth0") {
        *to = from.cast_signed();
    }
    // SAFETY: the call reads the name, and writes the flags.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    if answer != 0 {
        return Err(failed("eth0")(io::Error::last_os_error()));
    }
    // SAFETY: the call has written that member.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    println!("{}", if flags & libc::IFF_RUNNING != 0 { "yes" } else { "no" });
    Ok(())
}
