//! Translated pages: the same headings and the same code as the English page.
use std::error::Error;
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::sources::texts;

/// Translated folders and files, with their English ones.
const FOLDER: [&str; 2] = ["guides/zh", "guides"];
const README: [&str; 2] = ["README.zh-CN.md", "README.md"];

/// Returns a line for each difference.
///
/// # Errors
/// An English page is missing, or the files of the checkout cannot be listed.
pub(super) fn translations() -> Result<Vec<String>, Box<dyn Error>> {
    let files = texts(|path| path.extension().is_some_and(|extension| extension == "md"))?;
    let mut found = Vec::new();
    let mut translated = 0;
    for (path, text) in &files {
        let english = if path == Path::new(README[0]) {
            Path::new(README[1]).to_owned()
        } else if let Ok(name) = path.strip_prefix(FOLDER[0]) {
            Path::new(FOLDER[1]).join(name)
        } else {
            continue;
        };
        let original = files.iter().find(|(other, _)| *other == english);
        let (_, original) = original.ok_or_else(|| format!("{}: no {}", path.display(), english.display()))?;
        translated += 1;
        found.extend(difference(original, text).map(|difference| {
            format!("{}: {difference}; {} has changed, so translate the change", path.display(), english.display())
        }));
    }
    if translated == 0 {
        return Err("translations: no page found; adapt the check to the new folders".into());
    }
    Ok(found)
}

/// Returns the first difference of the headings or of the code.
fn difference(english: &str, translated: &str) -> Option<String> {
    let (english, translated) = (Outline::of(english), Outline::of(translated));
    if english.headings != translated.headings {
        let at = english.headings.iter().zip(&translated.headings).take_while(|(one, other)| one == other).count() + 1;
        return Some(format!("heading {at} differs in its level, or is missing"));
    }
    let at = english.blocks.iter().zip(&translated.blocks).take_while(|(one, other)| one == other).count();
    (english.blocks != translated.blocks).then(|| format!("code block {} differs, or is missing", at + 1))
}

/// The levels of the headings, and the code blocks.
#[derive(Debug, Default)]
struct Outline {
    headings: Vec<u8>,
    blocks: Vec<String>,
}

impl Outline {
    fn of(text: &str) -> Self {
        let mut outline = Self::default();
        let mut block = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { level, .. }) => outline.headings.push(level as u8),
                Event::Start(Tag::CodeBlock(_)) => block = Some(String::new()),
                Event::End(TagEnd::CodeBlock) => outline.blocks.extend(block.take()),
                Event::Text(text) => {
                    if let Some(block) = &mut block {
                        block.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        outline
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ENGLISH: &str = "# Keys\n\ntext\n\n```rust\nlet a = 1;\n```\n\n## More\n";

    #[test]
    fn another_text_is_no_difference_and_another_heading_or_code_is() {
        let of = |translated: &str| difference(ENGLISH, translated);
        assert_eq!(of("# 键\n\n正文\n\n```rust\nlet a = 1;\n```\n\n## 更多\n"), None);
        assert_eq!(of("# 键\n\n```rust\nlet a = 1;\n```\n").unwrap(), "heading 2 differs in its level, or is missing");
        assert_eq!(of("# 键\n\n```rust\nlet a = 2;\n```\n\n## 更多\n").unwrap(), "code block 1 differs, or is missing");
    }

    #[test]
    fn the_translations_of_the_repository_have_the_headings_and_the_code_of_their_originals() {
        assert_eq!(translations().unwrap(), [""; 0]);
    }
}
