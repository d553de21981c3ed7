//! `biv image`: root file systems in the cache.

use serde::Serialize;

use crate::cli::{Format, ImageAction};
use crate::kernel::print;
use crate::provision::images::{self, Recipe};

/// An image, for programs.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    recipe: &'a str,
    age_seconds: u64,
}

/// Does what `biv image` says.
///
/// # Errors
///
/// A message of one line.
pub fn image(action: &ImageAction) -> Result<(), String> {
    match action {
        ImageAction::Ls { format } => list(*format),
        ImageAction::Build { name, suite, include } => {
            let recipe = Recipe { suite: suite.clone(), include: include.clone() };
            let image = images::build(name, &recipe).map_err(|error| error.to_string())?;
            print(&format!("{}\n", image.name))
        }
        ImageAction::Rm { name } => {
            for name in name {
                if !images::remove_called(name).map_err(|error| error.to_string())? {
                    return Err(format!("there is no image {name}; `biv image ls` lists them"));
                }
            }
            Ok(())
        }
    }
}

fn list(format: Format) -> Result<(), String> {
    let images = images::list().map_err(|error| error.to_string())?;
    if format == Format::Json {
        let entry = |image: &'_ images::Image| {
            serde_json::to_value(Entry {
                name: &image.name,
                recipe: &image.recipe,
                age_seconds: image.age.as_secs(),
            })
        };
        let entries: Result<Vec<_>, _> = images.iter().map(entry).collect();
        let text = entries.and_then(|entries| serde_json::to_string_pretty(&entries));
        return print(&format!("{}\n", text.map_err(|error| error.to_string())?));
    }
    let mut text = format!("{:<24} {:>8}  {}\n", "NAME", "AGE", "MADE FROM");
    for image in &images {
        let days = image.age.as_secs() / 86_400;
        text.push_str(&format!("{:<24} {days:>6} d  {}\n", image.name, image.recipe));
    }
    print(&text)
}
