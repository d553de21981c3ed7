//! Published ports of the host's, of which some are to be chosen.

use std::io;

use domain::run::ports::choose;
use spec::{Ports, Published};

/// The ports that these options publish. Where a port of the host is chosen, it is said which.
///
/// # Errors
///
/// No port is free.
pub fn published(ports: Vec<Ports>) -> Result<Vec<Published>, String> {
    let each = ports.into_iter().map(|ports| ports.each(choose)).collect::<io::Result<Vec<_>>>();
    Ok(each.map_err(|error| format!("no port of the host is free: {error}"))?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(typed: &str) -> Result<Vec<String>, String> {
        let ports: Ports = typed.parse().map_err(str::to_owned)?;
        Ok(published(vec![ports])?.iter().map(Published::to_string).collect())
    }

    #[test]
    fn ports_are_published_one_by_one() {
        let check = |typed: &str, expected: &[&str]| {
            assert_eq!(texts(typed).unwrap(), expected, "{typed}");
        };
        check("8080:80", &["127.0.0.1:8080:80"]);
        check("0.0.0.0:53:5353/udp", &["0.0.0.0:53:5353/udp"]);
        check("1-1:2-2/tcp", &["127.0.0.1:1:2"]);
        check("[::1]:8080:80", &["[::1]:8080:80"]);
        check("[::]:8000-8001:1-2/udp", &["[::]:8000:1/udp", "[::]:8001:2/udp"]);
        check("65534-65535:1-2", &["127.0.0.1:65534:1", "127.0.0.1:65535:2"]);
        let ports: Ports = "1-65535:1-65535".parse().unwrap();
        assert_eq!(published(vec![ports]).unwrap().len(), 65535);
    }

    #[test]
    fn a_port_of_the_host_is_chosen_if_none_is_said() {
        for (typed, guests) in
            [("80", "80"), ("127.0.0.1::80", "80"), ("[::1]::80", "80"), ("80-81/udp", "80 81")]
        {
            let ports: Ports = typed.parse().unwrap();
            let all = published(vec![ports]).unwrap();
            let found: Vec<_> = all.iter().map(|port| port.guest.to_string()).collect();
            assert_eq!(found.join(" "), guests);
            assert!(all.iter().all(|port| port.host != 0 && port.is_udp == typed.ends_with("udp")));
        }
    }

    #[test]
    fn what_names_no_ports_is_refused() {
        let wrong = [
            "", ":", "0", "0:80", "80:0", "65536:1", "a:1", "1:2:3", "::1:80", "1:2/sctp", "2-1",
            "1-2:1", "1-:1", "-1:1", "1:2:3:4",
        ];
        for typed in wrong {
            assert!(typed.parse::<Ports>().is_err(), "{typed:?}");
        }
    }
}
