//! Rules of the guides, which are one source for GitHub, for the book and for rustdoc, and of translated pages.
use std::path::Path;

use super::sources::texts;
use crate::report::Findings;

const SUMMARY: &str = "guides/SUMMARY.md";
/// The page of the book that only points to others.
const INTRODUCTION: &str = "introduction.md";
/// The modules that show each guide in rustdoc, and that compile its examples.
const SHOWN: &str = "src/docs.rs";
const COMPILED: &str = "tests/integration/guides.rs";
/// The folder of the translated guides, and the translated README.
const TRANSLATED: &str = "zh/";
const README: [&str; 2] = ["README.zh-CN.md", "README.md"];

/// Returns a line for each breach of the rules.
pub(super) fn guides() -> Findings {
    let files = texts(|path| {
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        is_page && path.starts_with("guides") || [SHOWN, COMPILED].iter().chain(&README).any(|name| *path == **name)
    })?;
    let text = |name: &str| {
        let file = files.iter().find(|(path, _)| path == Path::new(name));
        file.map(|(_, text)| text.as_str()).ok_or_else(|| format!("guides: no {name}"))
    };
    let (summary, shown, compiled) = (text(SUMMARY)?, text(SHOWN)?, text(COMPILED)?);
    let difference_of_readme = difference(text(README[1])?, text(README[0])?);
    let mut found: Vec<_> = difference_of_readme.map(|found| format!("{}: {found}", README[0])).into_iter().collect();
    for (path, page) in &files {
        let Ok(name) = path.strip_prefix("guides").map(Path::to_string_lossy) else { continue };
        let mut breaches = breaches(page);
        if path != Path::new(SUMMARY) && !summary.contains(&format!("({name})")) {
            breaches.push(format!(" not listed in {SUMMARY}"));
        }
        if let Some(english) = name.strip_prefix(TRANSLATED) {
            breaches.extend(difference(text(&format!("guides/{english}"))?, page).map(|found| format!(" {found}")));
        } else if name != INTRODUCTION && path != Path::new(SUMMARY) {
            // Rustdoc shows the English pages, and the code of a translation is that of its English page.
            if !shown.contains(&format!("\"{name}\"")) && !shown.contains(&format!("guides/{name}\"")) {
                breaches.push(format!(" not included in {SHOWN}"));
            }
            if page.contains("```rust") && !compiled.contains(&format!("guides/{name}\"")) {
                breaches.push(format!(" its examples are not compiled; add it to {COMPILED}"));
            }
        }
        found.extend(breaches.into_iter().map(|breach| format!("{}:{breach}", path.display())));
    }
    Ok(found)
}

/// The lines of a page by their kinds, with the numbers of lines and of the starts of blocks.
#[derive(Debug, Default)]
struct Page<'p> {
    /// The levels of the headings.
    headings: Vec<usize>,
    /// The code blocks with their languages.
    blocks: Vec<(usize, &'p str, Vec<&'p str>)>,
    prose: Vec<(usize, &'p str)>,
}

impl<'p> Page<'p> {
    fn parse(text: &'p str) -> Self {
        let mut page = Self::default();
        let mut in_block = false;
        for (number, line) in (1..).zip(text.lines()) {
            match (line.trim_start().strip_prefix("```"), in_block) {
                (Some(language), false) => page.blocks.push((number, language, Vec::new())),
                (None, true) => page.blocks.iter_mut().last().into_iter().for_each(|block| block.2.push(line)),
                (None, false) => {
                    let level = line.len() - line.trim_start_matches('#').len();
                    page.headings.extend(Some(level).filter(|level| *level > 0));
                    page.prose.push((number, line));
                }
                (Some(_), true) => {}
            }
            in_block ^= line.trim_start().starts_with("```");
        }
        page
    }
}

/// Checks one guide: a title, no links that only rustdoc resolves, no hidden lines, and a language for each block.
fn breaches(text: &str) -> Vec<String> {
    let page = Page::parse(text);
    let mut found = Vec::new();
    if !text.starts_with("# ") {
        found.push("1: a guide starts with its title: `# Title`".to_owned());
    }
    let of_rustdoc = page.prose.iter().filter(|(_, line)| line.contains("](crate::"));
    found.extend(of_rustdoc.map(|(at, _)| format!("{at}: only rustdoc resolves `crate::`; write the name as code")));
    for (start, language, lines) in &page.blocks {
        if language.is_empty() {
            found.push(format!("{start}: a code block needs a language"));
        }
        let is_hidden = |line: &&str| line.trim_start() == "#" || line.trim_start().starts_with("# ");
        if language.starts_with("rust") && lines.iter().any(is_hidden) {
            found.push(format!("{start}: GitHub shows hidden lines; write the whole program"));
        }
    }
    found
}

/// Returns the first difference of the headings or of the code of a translated page.
fn difference(english: &str, translated: &str) -> Option<String> {
    let (english, translated) = (Page::parse(english), Page::parse(translated));
    let code = |page: &Page<'_>| page.blocks.iter().map(|(_, _, lines)| lines.join("\n")).collect::<Vec<_>>();
    let what = match (english.headings == translated.headings, code(&english) == code(&translated)) {
        (true, true) => return None,
        (false, _) => format!("heading {}", first(&english.headings, &translated.headings)),
        (true, false) => format!("code block {}", first(&code(&english), &code(&translated))),
    };
    Some(format!("{what} differs, or is missing; the English page has changed, so translate the change"))
}

/// Returns the number of the first element that differs.
fn first<T: PartialEq>(one: &[T], other: &[T]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count() + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_checked() {
        assert_eq!(breaches("# Keys\n\n[steps] `x`\n\n```rust\nlet a = 1;\n#[test]\n```\n"), [""; 0]);
        let found = breaches("Keys\n\n[`A`](crate::A)\n\n```\nx\n```\n```rust\n# use x;\n```\n").join("\n");
        for part in ["1: a guide starts with its title", "3: only rustdoc", "5: a code block", "8: GitHub"] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn another_text_is_no_difference_and_another_heading_or_code_is() {
        let english = "# Keys\n\ntext\n\n```rust\nlet a = 1;\n```\n\n## More\n";
        let of = |translated: &str| difference(english, translated).unwrap_or_default();
        assert_eq!(of("# 键\n\n正文\n\n```rust\nlet a = 1;\n```\n\n## 更多\n"), "");
        assert!(of("# 键\n\n```rust\nlet a = 1;\n```\n").starts_with("heading 2 differs, or is missing"));
        assert!(of("# 键\n\n```rust\nlet a = 2;\n```\n\n## 更多\n").starts_with("code block 1 differs"));
    }

    #[test]
    fn the_guides_of_the_repository_keep_the_rules() {
        assert_eq!(guides().unwrap(), [""; 0]);
    }
}
