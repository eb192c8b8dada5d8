//! The command `cargo xtask pictures`: records the pictures of README and the guides from the real programs.
mod console;
mod page;
mod recording;
mod svg;
mod terminal;
mod webdriver;

use std::error::Error;
use std::fs;
use std::path::Path;

use self::terminal::Terminal;
use crate::setup;
use crate::tools::{Done, cargo, ran, root, target};

/// The pictures, by the name of their program.
pub(crate) const NAMES: [&str; 3] = ["consume", "console", "shop"];

/// A command in the recorded terminal, and a text that its output must contain.
struct Scene {
    command: &'static str,
    comment: &'static str,
    expected: &'static str,
}

/// The scenes of `consume.svg`. The third worker dies during its run, and the last scene waits for its leases.
const SCENES: [Scene; 4] = [
    Scene {
        command: "cargo run -q --bin consume -- --fresh",
        comment: "494 deliveries, 287 distinct",
        expected: "287 rows, no key twice",
    },
    Scene { command: "cargo run -q --bin consume", comment: "again: nothing runs", expected: "nothing ran" },
    Scene {
        command: "timeout -s KILL 4 cargo run -q --bin consume -- --fresh --slow-ms 50 --workers 2",
        comment: "kill -9",
        expected: " executed, ",
    },
    Scene {
        command: "cargo run -q --bin consume",
        comment: "takes over, and does the rest",
        expected: "taken over from a dead worker",
    },
];

/// The largest permitted size of a picture in bytes: the pictures are a part of each clone.
const LARGEST: usize = 150 << 10;

/// Writes the picture of one program, or all pictures.
pub(crate) fn write(only: Option<&str>) -> Done {
    let scratch = target()?.join("xtask/pictures");
    fs::create_dir_all(&scratch)?;
    if only.is_none_or(|only| only == "consume") {
        save("consume.svg", consume(&scratch)?.as_bytes())?;
    }
    if only.is_none_or(|only| only != "consume") && !setup::browser::all()? {
        return Ok(false);
    }
    if only.is_none_or(|only| only == "console") {
        println!("xtask pictures: building the example console");
        let build = ["build", "--locked", "--package", "idempotent-examples", "--features", "console"];
        ran(cargo(&build)?.args(["--example", "console"]))?;
        for (name, picture) in console::take(&target()?.join("debug/examples/console"), &scratch)? {
            save(name, &picture)?;
        }
    }
    if only.is_none_or(|only| only == "shop") {
        println!("xtask pictures: building shop");
        ran(&mut cargo(&["build", "--release", "--locked", "--package", "idempotent-shop"])?)?;
        save("shop.png", &page::take(&target()?.join("release/shop"), &scratch)?)?;
    }
    Ok(true)
}

/// Records all scenes, and returns them as an animation.
fn consume(scratch: &Path) -> Result<String, Box<dyn Error>> {
    println!("xtask pictures: building consume");
    ran(&mut cargo(&["build", "--locked", "--bin", "consume"])?)?;
    let mut terminal = Terminal::default();
    for Scene { command, comment, expected } in SCENES {
        println!("xtask pictures: recording `{command}`");
        let chunks = recording::record(command, scratch)?;
        let text: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
        if !text.contains(expected) {
            return Err(format!("`{command}` does not print `{expected}`: {text}").into());
        }
        if text.contains(&*root()?.to_string_lossy()) {
            return Err(format!("`{command}` prints a path of this machine: {text}").into());
        }
        terminal.command(command, comment);
        terminal.output(&chunks);
    }
    terminal.end();
    Ok(svg::animation("A terminal that runs consume four times", &terminal))
}

/// Writes a picture into the folder of pictures.
///
/// # Errors
/// The picture is too large, or cannot be written.
fn save(name: &str, picture: &[u8]) -> Result<(), Box<dyn Error>> {
    let size = picture.len();
    if size > LARGEST {
        return Err(format!("{name} has {size} bytes, at most {LARGEST} are permitted").into());
    }
    let folder = root()?.join("guides/pictures");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), picture)?;
    println!("xtask pictures: guides/pictures/{name} has {} KiB", size.div_ceil(1 << 10));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_fits_into_a_row() {
        for Scene { command, comment, .. } in SCENES {
            assert!(format!("$ {command}  # {comment} ").len() <= terminal::COLUMNS, "{command}");
        }
    }
}
