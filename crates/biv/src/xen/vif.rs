//! `biv xen vif`: a domain's port of its network's router.

use std::fmt::Write as _;

use domain::network::vif::{Attached, Traffic};

use crate::cli::Format;
use crate::cli::xen::Vif;
use crate::life::Error;
use crate::print;

/// `biv xen vif`.
///
/// # Errors
///
/// There is no such domain or VIF.
pub fn vif(arguments: &Vif) -> Result<(), Error> {
    let entry = super::find(&arguments.name)?;
    let attached = Attached::of(&entry)?;
    if let Some(rate) = arguments.rate {
        return Ok(attached.set_rate(rate.0)?);
    }
    let port = attached.port()?;
    if arguments.format == Format::Json {
        return Ok(print::json(&port)?);
    }
    let addresses: Vec<String> = port.addresses.iter().map(ToString::to_string).collect();
    let mac = port.mac.unwrap_or_default();
    let rate = port.rate.map_or("none".to_owned(), |rate| format!("{rate} bytes/s"));
    let mut text = format!("{}: {} {mac} rate {rate}\n", port.port, addresses.join(" "));
    let mut line = |what: &str, traffic: Traffic| {
        let _ = writeln!(text, "{what:<24} {:>10} {:>14}", traffic.packets, traffic.bytes);
    };
    line("sent", port.transmitted);
    line("received", port.received);
    port.dropped.iter().for_each(|(why, traffic)| line(&format!("dropped {why}"), *traffic));
    Ok(print::text(&text)?)
}
