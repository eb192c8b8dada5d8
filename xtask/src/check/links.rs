//! Links of Markdown files: the file and the heading must exist.
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{BrokenLink, CowStr, Event, Options, Parser, Tag, TagEnd};

use super::sources::{paths, texts};
use crate::tools::root;

/// Returns a line for each dead link.
///
/// # Errors
/// The files of the checkout cannot be listed.
pub(super) fn links() -> Result<Vec<String>, Box<dyn Error>> {
    let is_page = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    // A tracked file may have been deleted.
    let root = root()?;
    let files: BTreeSet<_> = paths()?.into_iter().filter(|path| root.join(path).is_file()).collect();
    // Pages that only rustdoc shows have links to items, which rustdoc checks.
    let of_rustdoc = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("src/docs"));
    let pages: BTreeMap<_, _> = texts(|path| is_page(path) && !of_rustdoc(path))?
        .into_iter()
        .map(|(path, text)| (path, Page::parse(&text)))
        .collect();
    if pages.len() < 10 {
        return Err("links: few pages found; adapt the check to the new folders".into());
    }
    let exists = |path: &Path| files.iter().any(|file| file.starts_with(path));
    let mut found = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if let Some(problem) = problem(path, link, &pages, exists) {
                found.push(format!("{}: link to `{link}`: {problem}", path.display()));
            }
        }
    }
    Ok(found)
}

/// Returns why a link is dead, or `None`.
fn problem(
    from: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, Page>,
    exists: impl Fn(&Path) -> bool,
) -> Option<&'static str> {
    if link.starts_with("https://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let file = if file.is_empty() { from.to_owned() } else { joined(from.parent()?, file) };
    if !exists(&file) {
        return Some("no such file");
    }
    let anchor = anchor?;
    let page = pages.get(&file)?;
    (!page.anchors.contains(anchor)).then_some("no such heading")
}

/// Returns the path of a relative link, without `..`.
fn joined(folder: &Path, link: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The links and headings of a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) links: Vec<String>,
    anchors: BTreeSet<String>,
    /// Labels of reference links without a definition, such as `[keys]`.
    pub(super) undefined: Vec<String>,
}

impl Page {
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut undefined = Vec::new();
        let see = |link: BrokenLink<'_>| -> Option<(CowStr<'_>, CowStr<'_>)> {
            undefined.push(link.reference.to_string());
            None
        };
        let mut heading = None;
        for event in Parser::new_with_broken_link_callback(text, Options::ENABLE_TABLES, Some(see)) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.anchors.extend(heading.take().map(|text| anchor(&text))),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page.undefined = undefined;
        page
    }
}

/// Returns the anchor of a heading, as GitHub, mdBook and rustdoc build it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|char| char.is_alphanumeric() || "-_ ".contains(*char))
        .map(|char| if char == ' ' { '-' } else { char })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_found_and_a_live_one_is_not() {
        let page = Page::parse("# Two `keys`, one\n[a](b.md) [c](#two-keys-one) [d]\n\n[d]: ../e.md#f\n");
        assert_eq!(page.links, ["b.md", "#two-keys-one", "../e.md#f"]);
        let pages = BTreeMap::from([(PathBuf::from("guides/a.md"), page), ("e.md".into(), Page::parse("# G\n"))]);
        let exists = |path: &Path| [Path::new("guides/a.md"), Path::new("e.md")].contains(&path);
        let of = |link| problem(Path::new("guides/a.md"), link, &pages, exists);
        assert_eq!(of("b.md"), Some("no such file"));
        assert_eq!(of("#two-keys-one"), None);
        assert_eq!(of("#three-keys"), Some("no such heading"));
        assert_eq!(of("../e.md#f"), Some("no such heading"));
        assert_eq!(of("../e.md#g"), None);
        assert_eq!(of("https://example.org"), None);
    }

    #[test]
    fn a_label_without_a_definition_is_listed() {
        assert_eq!(Page::parse("[keys] and [steps]\n\n[steps]: steps.md\n").undefined, ["keys"]);
    }

    #[test]
    fn the_pages_of_the_repository_have_no_dead_link() {
        assert_eq!(links().unwrap(), [""; 0]);
    }
}
