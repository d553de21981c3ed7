//! `biv image`: root file systems in the cache.

use serde::Serialize;

use crate::cli::{Format, ImageAction};
use crate::print::{self, unless_closed};
use provision::images::{self, Recipe};

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
            unless_closed(print::text(&format!("{}\n", image.name)))
        }
        ImageAction::Rm { name } => {
            for name in name {
                if !images::remove_called(name).map_err(|error| error.to_string())? {
                    return Err(format!("no image {name}; `biv image ls` lists the images"));
                }
            }
            Ok(())
        }
    }
}

fn list(format: Format) -> Result<(), String> {
    let images = images::list().map_err(|error| error.to_string())?;
    if format == Format::Json {
        let entries: Vec<_> = images
            .iter()
            .map(|image| Entry {
                name: &image.name,
                recipe: &image.recipe,
                age_seconds: image.age.as_secs(),
            })
            .collect();
        return unless_closed(print::json(&entries));
    }
    let mut text = format!("{:<24} {:>8}  {}\n", "NAME", "AGE", "MADE FROM");
    for image in &images {
        let days = image.age.as_secs() / 86_400;
        text.push_str(&format!("{:<24} {days:>6} d  {}\n", image.name, image.recipe));
    }
    unless_closed(print::text(&text))
}
