//! What is in a compose file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use spec::Name;

use crate::health::{Health, health};
use crate::interpolate;
use crate::order::order;
use crate::words::{Scalar, Words};

/// The largest file that is read, in bytes.
pub const FILE_MAX_BYTES: u64 = 1 << 20;

/// The most services of a project.
const SERVICES_MAX: usize = 64;

/// Why a file is no project.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no YAML.
    #[error("{0}")]
    Yaml(String),
    /// It is no document that is known here.
    #[error("{place}: {why}")]
    Word {
        /// The place, as in `services.web.ports[0]`.
        place: String,
        /// What is wrong there.
        why: String,
    },
    /// A variable.
    #[error("{0}")]
    Variable(String),
    /// The services do not belong together.
    #[error("{0}")]
    Services(String),
    /// A value of a service.
    #[error("service {service}: {why}")]
    Service {
        /// The service.
        service: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Several machines that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its name, if the file says it.
    pub name: Option<Name>,
    /// Its services, each after those that it depends on.
    pub services: Vec<(Name, Service)>,
}

/// What a file is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: Option<Name>,
    /// Said by old files, and without a meaning since.
    #[serde(rename = "version")]
    _version: Option<Scalar>,
    services: BTreeMap<Name, Service>,
    /// Names of volumes; each is a cache of the same name.
    #[serde(default)]
    volumes: BTreeMap<Name, Option<Nothing>>,
}

/// What has no settings here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A service: the words of the specification that have a meaning here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    pub(crate) image: Option<String>,
    pub(crate) container_name: Option<Name>,
    pub(crate) entrypoint: Option<Words>,
    pub(crate) command: Option<Words>,
    pub(crate) environment: Pairs,
    pub(crate) env_file: Several,
    pub(crate) ports: Vec<Port>,
    pub(crate) expose: Vec<Scalar>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) depends_on: Dependencies,
    #[serde(deserialize_with = "health")]
    pub(crate) healthcheck: Option<Health>,
    pub(crate) hostname: Option<String>,
    pub(crate) working_dir: Option<String>,
    pub(crate) user: Option<Scalar>,
    pub(crate) restart: Option<Scalar>,
    pub(crate) cpus: Option<Scalar>,
    pub(crate) cpu_shares: Option<Scalar>,
    pub(crate) mem_limit: Option<Scalar>,
    pub(crate) labels: Pairs,
    pub(crate) stop_signal: Option<String>,
    pub(crate) network_mode: Option<Mode>,
    /// More options of `biv run`.
    #[serde(rename = "x-biv")]
    pub(crate) options: Vec<String>,
}

/// One, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Several {
    One(String),
    List(Vec<String>),
}

impl Default for Several {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// Names with values: `NAME: VALUE` each, or a list of `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Pairs {
    Map(BTreeMap<String, Option<Scalar>>),
    List(Vec<String>),
}

impl Default for Pairs {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// A port: a text as `biv run --publish` has it, or its parts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Port {
    Short(Scalar),
    Long(LongPort),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LongPort {
    pub target: u16,
    pub published: Option<Scalar>,
    pub host_ip: Option<String>,
    #[serde(default)]
    pub protocol: Transport,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    #[default]
    Tcp,
    Udp,
}

/// A volume: `HOST:GUEST[:ro]`, `NAME:GUEST[:ro]`, or its parts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Volume {
    Short(String),
    Long(LongVolume),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LongVolume {
    #[serde(rename = "type")]
    pub kind: VolumeKind,
    pub source: String,
    pub target: String,
    #[serde(default)]
    pub read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VolumeKind {
    Bind,
    Volume,
}

/// What a service depends on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Dependencies {
    List(Vec<String>),
    Map(BTreeMap<String, Condition>),
}

impl Default for Dependencies {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    #[serde(default, rename = "condition")]
    when: When,
    #[serde(default, rename = "required")]
    _is_required: Option<bool>,
}

/// When what depends on a service may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// When that has started.
    #[default]
    ServiceStarted,
    /// When that is fit for work.
    ServiceHealthy,
    /// When that has ended with status 0.
    ServiceCompletedSuccessfully,
}

/// A network that is not the project's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// None at all.
    None,
}

impl Dependencies {
    /// What is depended on, and when that is enough.
    fn all(&self) -> Vec<(&str, When)> {
        match self {
            Self::List(names) => names.iter().map(|it| (it.as_str(), When::default())).collect(),
            Self::Map(names) => names.iter().map(|(name, it)| (name.as_str(), it.when)).collect(),
        }
    }
}

impl Service {
    /// When it may start, if it depends on this service.
    #[must_use]
    pub fn needs(&self, service: &Name) -> Option<When> {
        let all = self.depends_on.all();
        all.into_iter().find(|(name, _)| *name == service.as_str()).map(|(_, when)| when)
    }

    /// How it is found out whether it is fit for work, if anybody has said how.
    #[must_use]
    pub fn health(&self) -> Option<&Health> {
        self.healthcheck.as_ref()
    }
}

impl Project {
    /// Reads a file, whose variables are those of `variable`.
    ///
    /// # Errors
    ///
    /// [`Error`]: it is no compose file, or one of things that are not known here.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut value: Value = serde_saphyr::from_str(text).map_err(|error| {
            // Behind its first line the error shows the place in the text.
            let said = error.to_string();
            let line = said.lines().next().unwrap_or_default();
            Error::Yaml(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })?;
        interpolate::all(&mut value, variable).map_err(Error::Variable)?;
        let document: Document = serde_path_to_error::deserialize(value).map_err(|error| {
            let place = error.path().to_string();
            Error::Word { place, why: error.into_inner().to_string() }
        })?;
        document.ordered()
    }
}

impl Document {
    fn ordered(mut self) -> Result<Project, Error> {
        let refused = |why: String| Err(Error::Services(why));
        match self.services.len() {
            0 => return refused("there are no services".to_owned()),
            1..=SERVICES_MAX => {}
            count => return refused(format!("{count} services; at most {SERVICES_MAX} can be")),
        }
        for (name, service) in &self.services {
            let is_known = |it: &String| self.volumes.keys().any(|known| known.as_str() == it);
            if let Some(unknown) = service.caches().iter().find(|it| !is_known(it)) {
                let why = format!("volume {unknown} is not among the file's volumes");
                return Err(Error::Service { service: name.to_string(), why });
            }
        }
        let dependencies: BTreeMap<&str, Vec<&str>> = self
            .services
            .iter()
            .map(|(name, service)| {
                let needed = service.depends_on.all().into_iter().map(|(needed, _)| needed);
                (name.as_str(), needed.collect())
            })
            .collect();
        self.check_health()?;
        let ordered = order(&dependencies).map_err(Error::Services)?;
        let take = |name: String| self.services.remove_entry(&name.parse().ok()?);
        Ok(Project { name: self.name, services: ordered.into_iter().filter_map(take).collect() })
    }

    /// Whoever waits until a service is fit for work is to be told some day.
    fn check_health(&self) -> Result<(), Error> {
        for (name, service) in &self.services {
            for (needed, when) in service.depends_on.all() {
                let mut all = self.services.iter();
                let found = all.find(|(other, _)| other.as_str() == needed);
                let is_told = found.is_none_or(|(_, needed)| needed.health().is_some());
                if when == When::ServiceHealthy && !is_told {
                    let why =
                        format!("it waits until {needed} is healthy, which has no healthcheck");
                    return Err(Error::Service { service: name.to_string(), why });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Project, Error> {
        Project::parse(text, &|name| (name == "TAG").then(|| "16".to_owned()))
    }

    #[test]
    fn services_are_read_in_their_order() {
        let project = parse(
            "name: shop
version: '3.8'
services:
  web:
    image: web:latest
    ports: ['8080:80', 443, {target: 53, published: 5353, protocol: udp}]
    depends_on: {db: {condition: service_healthy}}
    environment: {DATABASE: db, DEBUG: 1, PASSED: }
  db:
    image: postgres:${TAG}
    restart: no
    healthcheck: {test: pg_isready, interval: 5s}
    volumes: ['data:/var/lib/postgresql']
volumes: {data: }
",
        )
        .unwrap();
        assert_eq!(project.name.unwrap().as_str(), "shop");
        let names: Vec<&str> = project.services.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["db", "web"]);
        let (db, web) = (&project.services[0].1, &project.services[1].1);
        assert_eq!(db.image.as_deref(), Some("postgres:16"));
        assert_eq!(web.needs(&project.services[0].0), Some(When::ServiceHealthy));
        assert!(db.needs(&project.services[1].0).is_none() && web.health().is_none());
        assert_eq!(db.health().unwrap().patience.as_secs(), 15);
    }

    #[test]
    fn anchors_and_merges_are_yamls() {
        let project = parse(
            "services:
  a: &one {image: x, environment: {A: a}}
  b: {<<: *one, hostname: bee}
",
        )
        .unwrap();
        let b = &project.services[1].1;
        assert_eq!((b.image.as_deref(), b.hostname.as_deref()), (Some("x"), Some("bee")));
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_place() {
        for (text, words) in [
            ("", ""),
            ("services: [", ""),
            ("services: {}", "no services"),
            ("services: {a: {imge: x}}", "imge"),
            ("services: {a: {build: .}}", "build"),
            ("services: {a: {healthcheck: {test: [x]}}}", "services.a.healthcheck"),
            ("services: {a: {depends_on: {b: {condition: x}}}, b: {}}", "services.a.depends_on"),
            ("services: {a: {ports: [{target: x}]}}", "services.a.ports"),
            ("services: {../x: {image: x}}", "../x"),
            ("services: {a: {depends_on: [b]}}", "depends on b"),
            ("services: {a: {depends_on: {a: {}}}}", "circle"),
            (
                "services: {a: {depends_on: {b: {condition: service_healthy}}}, b: {}}",
                "service a: it waits until b is healthy, which has no healthcheck",
            ),
            ("services: {a: {volumes: ['data:/x']}}", "data"),
            ("services: {a: {image: '${NO:?a tag}'}}", "NO: a tag"),
            ("services: {a: {network_mode: host}}", "services.a.network_mode"),
            ("services: {a: {image: x}}\nsecrets: {}", "secrets"),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }

    #[test]
    fn a_document_that_grows_without_end_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", [before.as_str(); 8].join(", "));
        }
        assert!(matches!(parse(&text), Err(Error::Yaml(_))));
    }
}
