//! When a service is fit for work (`healthcheck`).

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::words::{Scalar, Words};

/// What the specification says where a file does not.
const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(30);
const RETRIES: u32 = 3;

/// The longest time between two tests. Whoever waits for a service is not to wait for the next test.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How it is found out whether a service is fit for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// A command in its machine, which ends with status 0 if so.
    pub test: Vec<String>,
    /// How long the command may take.
    pub timeout: Duration,
    /// How long it is before the next.
    pub pause: Duration,
    /// How long a service may fail in the beginning: `start_period`, and then as many intervals as there are retries.
    pub patience: Duration,
}

/// The same as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    test: Option<Words>,
    interval: Option<Scalar>,
    timeout: Option<Scalar>,
    retries: Option<Scalar>,
    start_period: Option<Scalar>,
    start_interval: Option<Scalar>,
    #[serde(default)]
    disable: bool,
}

/// What a file says of it; none if nobody is to ask.
pub(crate) fn health<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Health>, D::Error> {
    Written::deserialize(from)?.meant().map_err(serde::de::Error::custom)
}

impl Written {
    fn meant(self) -> Result<Option<Health>, String> {
        let interval = span(self.interval.as_ref(), INTERVAL)?;
        let start_interval = span(self.start_interval.as_ref(), interval)?;
        let start_period = span(self.start_period.as_ref(), Duration::ZERO)?;
        let timeout = span(self.timeout.as_ref(), TIMEOUT)?;
        let retries = self.retries.map_or(Ok(RETRIES), |retries| {
            let retries = retries.to_string();
            retries.parse().map_err(|_| format!("{retries:?} is no number of retries"))
        })?;
        let test = if self.disable { None } else { command(self.test.as_ref())? };
        Ok(test.map(|test| Health {
            test,
            timeout,
            pause: PAUSE_MAX.min(interval).min(start_interval),
            patience: start_period.saturating_add(interval.saturating_mul(retries)),
        }))
    }
}

/// A time such as `1m30s`.
fn span(text: Option<&Scalar>, otherwise: Duration) -> Result<Duration, String> {
    text.map_or(Ok(otherwise), |text| {
        let text = text.to_string();
        humantime::parse_duration(&text).map_err(|error| format!("{text:?} is no time: {error}"))
    })
}

/// The command of a test.
fn command(test: Option<&Words>) -> Result<Option<Vec<String>>, String> {
    let in_shell = |line: &str| Ok(Some(["/bin/sh", "-c", line].map(str::to_owned).to_vec()));
    match test {
        None => Err("there is no test; that of an image is not known here".to_owned()),
        Some(Words::Line(line)) => in_shell(line),
        Some(Words::List(words)) => {
            let words: Vec<String> = words.iter().map(Scalar::to_string).collect();
            match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["NONE"] => Ok(None),
                ["CMD-SHELL", line] => in_shell(line),
                ["CMD", _, ..] => Ok(Some(words[1..].to_vec())),
                _ => Err("a test is a text, or begins with NONE, CMD or CMD-SHELL".to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(text: &str) -> Result<Option<Health>, String> {
        let written: Written = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        written.meant()
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        let asked = |text: &str| health(text).unwrap().unwrap();
        let plain = asked("{test: pg_isready -U me}");
        let words = ["/bin/sh", "-c", "pg_isready -U me"];
        assert_eq!(plain.test, words);
        let second = Duration::from_secs(1);
        assert_eq!(
            (plain.timeout, plain.pause, plain.patience),
            (second * 30, second, second * 90)
        );
        let full = asked(
            "{test: [CMD, redis-cli, ping], interval: 500ms, timeout: 1m30s, retries: '4', \
             start_period: 10s, start_interval: 100ms}",
        );
        assert_eq!(full.test, ["redis-cli", "ping"]);
        assert_eq!((full.timeout, full.pause), (second * 90, second / 10));
        assert_eq!(full.patience, second * 12);
        assert_eq!(asked("{test: [CMD-SHELL, a | b]}").test[2], "a | b");
        for none in ["{test: [NONE]}", "{disable: true}", "{test: x, disable: true}"] {
            assert_eq!(health(none), Ok(None), "{none}");
        }
        // Nobody lives that long.
        let long = asked("{test: x, interval: 100years, retries: 4294967295, start_period: 1s}");
        assert!(long.patience > second * 1_000_000);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, words) in [
            ("{}", "no test"),
            ("{test: []}", "begins with"),
            ("{test: [CMD]}", "begins with"),
            ("{test: [pg_isready]}", "begins with"),
            ("{test: [CMD-SHELL, a, b]}", "begins with"),
            ("{test: x, interval: soon}", "\"soon\" is no time"),
            ("{test: x, timeout: -1s}", "no time"),
            ("{test: x, retries: -1}", "no number"),
            ("{test: x, often: true}", "often"),
        ] {
            let refused = health(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
