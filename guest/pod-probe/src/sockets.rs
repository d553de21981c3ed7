//! Sockets with names: abstract ones of Unix, ports of TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use crate::{Failure, check, failed};

/// The abstract name that everybody uses.
const NAME: &str = "bivouac-probe";

/// The port that everybody uses.
const PORT: u16 = 17_171;

/// Two sockets that listen, and tell who connects the tag.
pub struct Listeners;

fn name() -> Result<SocketAddr, Failure> {
    SocketAddr::from_abstract_name(NAME).map_err(failed("an abstract name"))
}

impl Listeners {
    /// Opens them, with a thread for each.
    pub fn open(tag: &str) -> Result<Listeners, Failure> {
        let unix = UnixListener::bind_addr(&name()?).map_err(failed("an abstract socket"))?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT);
        let tcp = TcpListener::bind(address).map_err(failed("a TCP port"))?;
        let (one, other) = (tag.to_owned(), tag.to_owned());
        std::thread::spawn(move || {
            unix.incoming().flatten().for_each(|mut client| drop(client.write_all(one.as_bytes())));
        });
        std::thread::spawn(move || {
            tcp.incoming()
                .flatten()
                .for_each(|mut client| drop(client.write_all(other.as_bytes())));
        });
        Ok(Listeners)
    }

    /// Connects to both, and hears whose they are.
    pub fn check(&self, tag: &str) -> Result<(), Failure> {
        let what = "abstract socket";
        let mut unix = UnixStream::connect_addr(&name()?).map_err(failed(what))?;
        check(what, &heard(&mut unix)?, tag)?;
        let mut tcp =
            TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).map_err(failed("TCP port"))?;
        check("TCP port", &heard(&mut tcp)?, tag)
    }
}

fn heard(from: &mut impl Read) -> Result<String, Failure> {
    let mut text = String::new();
    from.read_to_string(&mut text).map_err(failed("a socket"))?;
    Ok(text)
}
