//! The commands in the text of a guide.
use std::collections::BTreeSet;

/// The line of a guide that begins a section.
const HEADING: &str = "## ";

/// A section of a guide.
#[derive(Debug, Default)]
pub(crate) struct GuideSection {
    pub(crate) title: String,
    /// The commands of the program, from console blocks and from inline code.
    pub(crate) commands: BTreeSet<String>,
    /// The other commands of console blocks.
    pub(crate) others: Vec<String>,
}

/// Returns the sections of a guide. The text before the first heading is a section without a title.
pub(crate) fn sections(guide: &str) -> Vec<GuideSection> {
    let mut sections = vec![GuideSection::default()];
    let (mut block, mut prose) = (None, String::new());
    for line in guide.lines() {
        let section = sections.last_mut().unwrap();
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(language)) => {
                section.read_prose(&std::mem::take(&mut prose));
                block = Some((language == "console", Vec::new()));
            }
            (Some((is_console, lines)), Some(_)) => {
                if *is_console {
                    section.read_console(lines);
                }
                block = None;
            }
            (Some((_, lines)), None) => lines.push(line),
            (None, None) if line.starts_with(HEADING) => {
                section.read_prose(&std::mem::take(&mut prose));
                let title = line[HEADING.len()..].to_owned();
                sections.push(GuideSection { title, ..GuideSection::default() });
            }
            (None, None) => prose.extend([line, "\n"]),
        }
    }
    assert!(block.is_none(), "a code block has no end");
    sections.last_mut().unwrap().read_prose(&prose);
    sections
}

impl GuideSection {
    /// Reads the inline code of a text. A span may continue on the next line.
    fn read_prose(&mut self, text: &str) {
        for paragraph in text.split("\n\n") {
            let spans = paragraph.split('`').skip(1).step_by(2);
            let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
            self.commands.extend(spans.filter(|span| is_of_program(span)));
        }
    }

    /// Reads the commands of a console block. An indented line continues its command, and any other line is output.
    fn read_console(&mut self, lines: &[&str]) {
        let mut commands = Vec::<String>::new();
        for line in lines {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push(command.split("  #").next().unwrap_or_default().trim_end().to_owned()),
                None if line.starts_with(' ') => commands.last_mut().unwrap().extend(["\n", line]),
                None => {}
            }
        }
        let (own, others): (Vec<_>, Vec<_>) = commands.into_iter().partition(|command| is_of_program(command));
        self.commands.extend(own);
        self.others.extend(others);
    }
}

fn is_of_program(command: &str) -> bool {
    command.starts_with("idempotent ")
}
