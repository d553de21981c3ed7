//! A registry with pods, which go with it, and a directory for their images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run;
use serde_json::Value;

/// See the head of this file.
#[derive(Debug)]
pub struct Place {
    biv: PathBuf,
    directory: PathBuf,
    /// Where commands are run.
    at: PathBuf,
}

impl Place {
    /// An empty one with this name, whose commands are run in the root directory.
    ///
    /// # Errors
    ///
    /// When there is no room for it.
    pub fn new(name: &str) -> Result<Self, String> {
        let name = format!("biv-bench-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).map_err(|error| error.to_string())?;
        Ok(Self { biv: beside("biv")?, directory, at: "/".into() })
    }

    /// The same with commands that are run elsewhere.
    pub fn at(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.at);
        self
    }

    /// A file in its directory.
    pub fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `biv pod` with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.biv);
        command.arg("pod").args(arguments);
        command.env("XDG_RUNTIME_DIR", &self.directory).current_dir(&self.at);
        command
    }

    /// The same, run to its end; what it says.
    ///
    /// # Errors
    ///
    /// When it fails, with what it complains about.
    pub fn pod(&self, arguments: &[&str]) -> Result<String, String> {
        run(&mut self.command(arguments))
    }

    /// Names and keepers of the pods that there are.
    ///
    /// # Errors
    ///
    /// When nobody can say.
    pub fn pods(&self) -> Result<Vec<(String, u32)>, String> {
        let said = self.pod(&["ps", "--all", "--format", "json"])?;
        let pods: Vec<Value> = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let known = pods.iter().map(|pod| {
            let keeper = pod["pid"].as_u64().and_then(|process| u32::try_from(process).ok());
            Some((pod["name"].as_str()?.to_owned(), keeper?))
        });
        known.collect::<Option<_>>().ok_or_else(|| format!("what pods are these? {said}"))
    }

    /// Ends all pods together.
    ///
    /// # Errors
    ///
    /// When one does not end.
    pub fn remove_all(&self) -> Result<(), String> {
        let pods = self.pods()?;
        if pods.is_empty() {
            return Ok(());
        }
        let names = pods.iter().map(|(name, _)| name.as_str());
        let remove: Vec<&str> = ["rm", "--force"].into_iter().chain(names).collect();
        self.pod(&remove).map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.remove_all();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A program that is built beside this one.
///
/// # Errors
///
/// When nobody knows where this one is.
pub fn beside(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name(name))
}
