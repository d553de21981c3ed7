//! Addresses of the Internet, as the kernel has them.

use std::net::SocketAddr;

/// An address of the Internet, as `struct sockaddr_in` and `struct sockaddr_in6`.
pub(super) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => Some(SocketAddr::from((*bytes.get(4..)?.first_chunk::<4>()?, port))),
        libc::AF_INET6 => Some(SocketAddr::from((*bytes.get(8..)?.first_chunk::<16>()?, port))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let mut four = libc::AF_INET.to_ne_bytes()[..2].to_vec();
        assert_eq!(parse(&four), None);
        four.extend([0x1f, 0x90, 10, 0, 0, 7, 0, 0]);
        assert_eq!(parse(&four), Some("10.0.0.7:8080".parse().expect("it is an address")));
        let mut six = libc::AF_INET6.to_ne_bytes()[..2].to_vec();
        six.extend([0, 80, 0, 0, 0, 0]);
        six.extend([0; 15]);
        assert_eq!(parse(&six), None);
        six.extend([1, 0, 0, 0, 0]);
        assert_eq!(parse(&six), Some("[::1]:80".parse().expect("it is an address")));
    }
}
