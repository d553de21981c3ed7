//! A service as options of `biv run`.

use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};
use spec::Name;

use crate::project::{
    Error, LongPort, LongVolume, Mode, Pairs, Port, Service, Several, Transport, Volume, VolumeKind,
};
use crate::words::{Scalar, Words};
use crate::{PROJECT, SERVICE};

/// One machine of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name, as of any machine.
    pub name: Name,
    /// What comes after `biv run`, but for what says that it was made from this.
    pub options: Vec<String>,
}

impl Machine {
    /// Whether it is in the project's network.
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.options.iter().take_while(|it| *it != "--").any(|it| it.starts_with("--network="))
    }

    /// By what it is known that two machines are made from the same, if their files are in the directory `home`.
    #[must_use]
    pub fn digest(&self, home: &Path) -> String {
        let mut hash = Sha256::new();
        let words = self.options.iter().map(String::as_bytes);
        for word in words.chain([home.as_os_str().as_encoded_bytes()]) {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word);
        }
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Machine {
    /// As somebody would start it by hand in a shell.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("biv run -d")?;
        // A word with a NUL cannot be typed, nor can a program be started with it: it is shown as empty.
        let quoted = |word: &str| shlex::try_quote(word).map(Into::into).unwrap_or_default();
        for word in &self.options {
            let word: String = match word.split_once('=') {
                Some((option, value)) if option.starts_with("--") && !value.is_empty() => {
                    format!("{option}={}", quoted(value))
                }
                _ => quoted(word),
            };
            write!(out, " {word}")?;
        }
        Ok(())
    }
}

impl Service {
    /// The names of volumes that are no places of the host.
    pub(crate) fn caches(&self) -> Vec<String> {
        let name = |volume: &Volume| match volume {
            Volume::Short(text) => {
                let source = text.split(':').next().unwrap_or_default();
                (!is_place(source)).then(|| source.to_owned())
            }
            Volume::Long(LongVolume { kind: VolumeKind::Volume, source, .. }) => {
                Some(source.clone())
            }
            Volume::Long(_) => None,
        };
        self.volumes.iter().filter_map(name).collect()
    }

    /// The machine of this service in a project, whose file is in the directory `home`.
    ///
    /// # Errors
    ///
    /// [`Error::Service`]: a value that no option can have.
    pub fn machine(&self, project: &Name, service: &Name, home: &Path) -> Result<Machine, Error> {
        let refused = |why: String| Error::Service { service: service.to_string(), why };
        let name = match &self.container_name {
            Some(name) => name.clone(),
            None => format!("{project}-{service}")
                .parse()
                .map_err(|error| refused(format!("{error}")))?,
        };
        let mut options = Options::default();
        options.add("--name", &name);
        options.add("--label", format!("{PROJECT}={project}"));
        options.add("--label", format!("{SERVICE}={service}"));
        match self.network_mode {
            Some(Mode::None) => options.add("--net", "none"),
            None => {
                options.add("--network", project);
                options.add("--network-alias", service);
            }
        }
        self.add_command_options(&mut options, home);
        self.add_machine_options(&mut options);
        for volume in &self.volumes {
            let (option, value) = volume.option(home).map_err(refused)?;
            options.add(option, value);
        }
        options.0.extend(self.options.iter().cloned());
        let command = self.command.as_ref().map_or(Ok(vec![]), Words::list).map_err(refused)?;
        if let Some(entrypoint) = &self.entrypoint {
            let words = entrypoint.list().map_err(refused)?;
            options.add("--entrypoint", serde_json::Value::from(words));
        }
        if !command.is_empty() {
            options.0.push("--".to_owned());
            options.0.extend(command);
        }
        Ok(Machine { name, options: options.0 })
    }

    fn add_command_options(&self, options: &mut Options, home: &Path) {
        options.add_some("--image", self.image.as_ref());
        for file in self.env_file.list() {
            options.add("--env-file", home.join(file).display());
        }
        for variable in self.environment.list() {
            options.add("--env", variable);
        }
        options.add_some("--workdir", self.working_dir.as_ref());
        options.add_some("--user", self.user.as_ref());
        options.add_some("--stop-signal", self.stop_signal.as_ref());
    }

    fn add_machine_options(&self, options: &mut Options) {
        options.add_some("--hostname", self.hostname.as_ref());
        // YAML 1.1 took `no` for a truth value.
        let no = Scalar::Text("no".to_owned());
        let restart = self.restart.as_ref();
        options.add_some(
            "--restart",
            restart.map(|it| if *it == Scalar::Truth(false) { &no } else { it }),
        );
        options.add_some("--cpus", self.cpus.as_ref());
        options.add_some("--cpu-shares", self.cpu_shares.as_ref());
        options.add_some("--mem", self.mem_limit.as_ref());
        for label in self.labels.list() {
            options.add("--label", label);
        }
        for port in &self.ports {
            options.add("--publish", port.text());
        }
    }
}

/// Options, each with its value in one word, so that no value is taken for an option.
#[derive(Default)]
struct Options(Vec<String>);

impl Options {
    fn add(&mut self, option: &str, value: impl ToString) {
        self.0.push(format!("{option}={}", value.to_string()));
    }

    fn add_some(&mut self, option: &str, value: Option<&impl ToString>) {
        if let Some(value) = value {
            self.add(option, value.to_string());
        }
    }
}

impl Several {
    fn list(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::List(list) => list,
        }
    }
}

impl Pairs {
    fn list(&self) -> Vec<String> {
        match self {
            Self::Map(map) => map
                .iter()
                .map(|(name, value)| match value {
                    Some(value) => format!("{name}={value}"),
                    None => name.clone(),
                })
                .collect(),
            Self::List(list) => list.clone(),
        }
    }
}

impl Port {
    fn text(&self) -> String {
        match self {
            Self::Short(text) => text.to_string(),
            Self::Long(LongPort { target, published, host_ip, protocol }) => {
                let address = host_ip.as_ref().map(|address| match address.contains(':') {
                    true => format!("[{address}]:"),
                    false => format!("{address}:"),
                });
                let host = published.as_ref().map(|port| format!("{port}:"));
                let protocol = if *protocol == Transport::Udp { "/udp" } else { "" };
                let (address, host) = (address.unwrap_or_default(), host.unwrap_or_default());
                format!("{address}{host}{target}{protocol}")
            }
        }
    }
}

impl Volume {
    fn option(&self, home: &Path) -> Result<(&'static str, String), String> {
        let (source, rest) = match self {
            Self::Short(text) => {
                let (source, rest) = text
                    .split_once(':')
                    .ok_or_else(|| format!("volume {text}: HOST:GUEST is expected"))?;
                (source, rest.to_owned())
            }
            Self::Long(LongVolume { source, target, read_only, .. }) => {
                (source.as_str(), format!("{target}{}", if *read_only { ":ro" } else { "" }))
            }
        };
        if source.starts_with('~') {
            return Err(format!("volume {source}: nobody expands ~ here, write ${{HOME}}"));
        }
        let is_bind = matches!(self, Self::Long(LongVolume { kind: VolumeKind::Bind, .. }));
        match is_bind || is_place(source) {
            true => Ok(("--volume", format!("{}:{rest}", home.join(source).display()))),
            false => Ok(("--cache", format!("{source}:{rest}"))),
        }
    }
}

/// Whether the source of a volume is a place of the host, and not a name.
fn is_place(source: &str) -> bool {
    source.starts_with(['/', '.', '~'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Project;

    fn options(text: &str) -> Result<Vec<String>, Error> {
        let project = Project::parse(text, &|_| None)?;
        let (service, it) = &project.services[0];
        let machine = it.machine(&"shop".parse().unwrap(), service, Path::new("/home/me"))?;
        assert_eq!(machine.options[0], format!("--name={}", machine.name));
        Ok(machine.options[1..].to_vec())
    }

    #[test]
    fn a_service_is_options_of_run() {
        let text = "services:
  web:
    image: web
    entrypoint: [/bin/web, -v]
    command: serve --title 'my shop'
    environment: {A: 1, B: , C: 'x y', D: 1.5}
    env_file: web.env
    ports: [80, '127.0.0.1:8080:80', {target: 53, published: 5353, host_ip: '::1', protocol: udp}]
    volumes: [./site:/site:ro, /srv:/srv, 'data:/data', {type: bind, source: x, target: /x}]
    restart: on-failure:3
    mem_limit: 512m
    cpus: 2
    user: 1000
    x-biv: [--timeout, '60']
volumes: {data: {}}
";
        let expected = "--label=bivouac.project=shop --label=bivouac.service=web --network=shop \
             --network-alias=web --image=web --env-file=/home/me/web.env --env=A=1 --env=B \
             --env=C=x\ty --env=D=1.5 --user=1000 --restart=on-failure:3 --cpus=2 --mem=512m \
             --publish=80 --publish=127.0.0.1:8080:80 --publish=[::1]:5353:53/udp \
             --volume=/home/me/./site:/site:ro --volume=/srv:/srv --cache=data:/data \
             --volume=/home/me/x:/x --timeout 60 --entrypoint=[\"/bin/web\",\"-v\"] \
             -- serve --title my\tshop";
        let expected: Vec<String> = expected
            .split(' ')
            .filter(|it| !it.is_empty())
            .map(|it| it.replace('\t', " "))
            .collect();
        assert_eq!(options(text).unwrap(), expected);
    }

    #[test]
    fn a_service_may_have_no_network() {
        let all = options("services: {a: {network_mode: none, restart: no}}").unwrap();
        let expected = [
            "--label=bivouac.project=shop",
            "--label=bivouac.service=a",
            "--net=none",
            "--restart=no",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn no_value_becomes_an_option() {
        let all =
            options("services: {a: {image: --sandbox, user: '--root-user', command: [--help]}}");
        let all = all.unwrap();
        assert!(all.contains(&"--image=--sandbox".to_owned()), "{all:?}");
        assert_eq!(all[all.len() - 2..], ["--", "--help"]);
    }

    #[test]
    fn a_machine_of_other_options_has_another_digest() {
        let machine = |options: &[&str]| Machine {
            name: "m".parse().unwrap(),
            options: options.iter().map(|it| (*it).to_owned()).collect(),
        };
        let of = |options: &[&str]| machine(options).digest(Path::new("/x"));
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(of(&["a"]), machine(&["a"]).digest(Path::new("/y")));
    }

    #[test]
    fn a_machine_is_shown_as_it_is_typed() {
        let options = ["--name=m", "--env=A=a b", "--", "echo", "a b"].map(str::to_owned).to_vec();
        let machine = Machine { name: "m".parse().unwrap(), options };
        assert_eq!(machine.to_string(), "biv run -d --name=m --env='A=a b' -- echo 'a b'");
    }

    #[test]
    fn what_no_option_can_have_is_refused() {
        for text in [
            "services: {a: {command: \"'\"}}",
            "services: {a: {volumes: [/x]}}",
            "services: {a: {volumes: [x]}}",
            "services: {a: {volumes: ['~/x:/x']}}",
            "services: {a: {volumes: [{type: bind, source: '~', target: /x}]}}",
        ] {
            assert!(matches!(options(text), Err(Error::Service { .. })), "{text}");
        }
    }
}
