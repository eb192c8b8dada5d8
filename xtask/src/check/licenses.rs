//! Files of other projects: no file carries another license or copyright, and each license file has the project's own text.
use std::path::{Path, PathBuf};

use super::sources::texts;
use crate::report::Findings;

/// The licenses of the project. Packages have copies of them.
const OWN: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The only folder with a file of another project: PGMQ 1.5.2, whose SQL no package contains.
const EXCEPTION: &str = "tests/harness/src/servers/pgmq";
/// Marks of a license, in lowercase. In pieces, so that this file does not match itself.
const MARKS: [&str; 6] = [
    concat!("spdx-license-", "identifier"),
    concat!("copyright ", "(c)"),
    concat!("copyright ", "20"),
    "\u{a9}",
    concat!("licensed under", " the"),
    concat!("permission is hereby", " granted"),
];

/// The starts of the names of license files, except for sources.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// Returns a line for each file with another license.
pub(super) fn licenses() -> Findings {
    Ok(findings(&texts(|path| !path.starts_with(EXCEPTION))?))
}

fn findings(files: &[(PathBuf, String)]) -> Vec<String> {
    let own = files.iter().filter(|(path, _)| OWN.iter().any(|own| path == Path::new(own)));
    let own: Vec<_> = own.map(|(_, text)| text).collect();
    let others = files.iter().filter(|(_, text)| !own.contains(&text));
    let finding = |(path, text): &(PathBuf, String)| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_license = !name.ends_with(".RS") && NAMES.iter().any(|start| name.starts_with(start));
        let text = text.to_lowercase();
        let mark = MARKS.into_iter().find(|mark| text.contains(mark)).or(is_license.then_some("its name"));
        mark.map(|mark| format!("{}: another project's license, by `{mark}`", path.display()))
    };
    others.filter_map(finding).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_own_license_pass_and_other_licenses_are_found() {
        let own = format!("{} 2026 us", MARKS[1]);
        let found = |path: &str, text: &str| {
            findings(&[("LICENSE-MIT".into(), own.clone()), (path.into(), text.to_owned())]).len()
        };
        for (path, text, number) in [
            ("web/tower/LICENSE-MIT", own.as_str(), 0),
            ("xtask/src/check/licenses.rs", "", 0),
            ("src/lib.rs", "//! Text.", 0),
            ("src/lib.rs", "// Copyright \u{a9} Them", 1),
            ("LICENSE-APACHE.txt", "Other", 1),
            ("COPYING", "", 1),
        ] {
            assert_eq!(found(path, text), number, "{path}: {text}");
        }
        assert!(MARKS.iter().all(|mark| found("src/lib.rs", &mark.to_uppercase()) == 1));
    }

    #[test]
    fn the_files_of_the_repository_have_no_other_license() {
        assert_eq!(licenses().unwrap(), [""; 0]);
    }
}
