//! The lines of a terminal over time.
use super::recording::Chunk;

/// The width of the terminal. A longer line continues in the next row, at a word.
pub(super) const COLUMNS: usize = 100;

/// The characters that appear at a time, since each state of a line is a part of the picture.
const TYPED: usize = 2;

/// The pauses of the animation, in milliseconds.
const BEFORE_TYPING: u64 = 400;
const KEYSTROKES: u64 = 50;
const AFTER_TYPING: u64 = 300;
const AFTER_OUTPUT: u64 = 3_500;
/// The longest pause between two chunks. A recording may wait longer, such as for a lease.
const LONGEST: u64 = 1_200;

/// A line from its appearance until its change.
#[derive(Debug, PartialEq)]
pub(super) struct Span {
    pub(super) row: usize,
    pub(super) line: Line,
    pub(super) from: u64,
    /// The end, or `None` if the line stays to the end of the animation.
    pub(super) until: Option<u64>,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    /// A prompt with a command and a comment, as far as they are typed.
    Prompt {
        command: String,
        comment: String,
        cursor: bool,
    },
    Output(String),
}

/// A terminal without colors. Its time starts at zero.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    pub(super) spans: Vec<Span>,
    /// The time, in milliseconds.
    pub(super) now: u64,
    /// The times at which a row was reached first: a terminal scrolls at such a time.
    pub(super) rows: Vec<u64>,
    /// The characters of the current row, and the column of the cursor.
    current: Vec<char>,
    column: usize,
}

impl Terminal {
    /// Types a command with its comment into a new row.
    pub(super) fn command(&mut self, command: &str, comment: &str) {
        if self.rows.is_empty() || !self.current.is_empty() {
            self.next_row();
        }
        let full = format!("{command}  # {comment}");
        self.prompt("", "");
        self.now += BEFORE_TYPING;
        for (end, _) in full.char_indices().skip(1).step_by(TYPED) {
            let (command, comment) = full[..end].split_at(command.len().min(end));
            self.prompt(command, comment);
            self.now += KEYSTROKES;
        }
        self.now += AFTER_TYPING;
        let line =
            Line::Prompt { command: command.to_owned(), comment: full[command.len()..].to_owned(), cursor: false };
        self.show(line);
        self.next_row();
    }

    /// Prints the output of a command at its recorded times.
    pub(super) fn output(&mut self, chunks: &[Chunk]) {
        for Chunk { pause, text } in chunks {
            self.now += (*pause).min(LONGEST);
            self.print(text);
        }
        self.now += AFTER_OUTPUT;
    }

    /// Shows the last prompt.
    pub(super) fn end(&mut self) {
        if !self.current.is_empty() {
            self.next_row();
        }
        self.prompt("", "");
        self.now += AFTER_OUTPUT;
    }

    fn prompt(&mut self, command: &str, comment: &str) {
        self.show(Line::Prompt { command: command.to_owned(), comment: comment.to_owned(), cursor: true });
    }

    /// Interprets line ends, the return to the first column, and the control sequence that clears the rest of a line. Other
    /// sequences are ignored.
    fn print(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            match char {
                '\n' => {
                    self.flush();
                    self.next_row();
                }
                '\r' => self.column = 0,
                '\u{1b}' => {
                    // Such as `ESC [ 1 m`: the first letter ends the sequence.
                    if chars.by_ref().find(char::is_ascii_alphabetic) == Some('K') {
                        self.current.truncate(self.column);
                    }
                }
                char => {
                    if self.column == COLUMNS {
                        self.wrap();
                    }
                    if self.column < self.current.len() {
                        self.current[self.column] = char;
                    } else {
                        self.current.push(char);
                    }
                    self.column += 1;
                }
            }
        }
        self.flush();
    }

    /// Continues in the next row, with the last word of a full row.
    fn wrap(&mut self) {
        let start = self.current.iter().rposition(|char| *char == ' ').map_or(COLUMNS, |space| space + 1);
        let word = self.current.split_off(start);
        self.flush();
        self.next_row();
        (self.column, self.current) = (word.len(), word);
    }

    /// Shows the current row.
    fn flush(&mut self) {
        self.show(Line::Output(self.current.iter().collect()));
    }

    /// Shows a line in the current row, in place of its earlier content.
    fn show(&mut self, line: Line) {
        let row = self.rows.len().saturating_sub(1);
        let shown = self.spans.last_mut().filter(|span| span.row == row && span.until.is_none());
        match shown {
            Some(span) if span.line == line => return,
            Some(span) if span.from == self.now => drop(self.spans.pop()),
            Some(span) => span.until = Some(self.now),
            None => {}
        }
        if line != Line::Output(String::new()) {
            self.spans.push(Span { row, line, from: self.now, until: None });
        }
    }

    fn next_row(&mut self) {
        self.rows.push(self.now);
        self.current.clear();
        self.column = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(texts: &[&str]) -> Terminal {
        let mut terminal = Terminal::default();
        terminal.next_row();
        let chunks: Vec<_> = texts.iter().map(|text| Chunk { pause: 10, text: (*text).to_owned() }).collect();
        terminal.output(&chunks);
        terminal
    }

    fn span(row: usize, text: &str, from: u64, until: Option<u64>) -> Span {
        Span { row, line: Line::Output(text.to_owned()), from, until }
    }

    #[test]
    fn a_status_line_is_replaced_and_a_result_stays() {
        let terminal = output(&["\r\u{1b}[K 1 %", "\r\u{1b}[K 2 %", "\r\u{1b}[Kdone\r\nall\r\n"]);
        let expected = [
            span(0, " 1 %", 10, Some(20)),
            span(0, " 2 %", 20, Some(30)),
            span(0, "done", 30, None),
            span(1, "all", 30, None),
        ];
        assert_eq!(terminal.spans, expected);
        assert_eq!(terminal.rows, [0, 30, 30]);
    }

    #[test]
    fn colors_are_ignored_and_a_long_pause_is_shortened() {
        let mut terminal = output(&["\u{1b}[1mbold\u{1b}[0m"]);
        terminal.output(&[Chunk { pause: 60_000, text: "!".to_owned() }]);
        let end = 10 + AFTER_OUTPUT + LONGEST;
        assert_eq!(terminal.spans, [span(0, "bold", 10, Some(end)), span(0, "bold!", end, None)]);
    }

    #[test]
    fn a_long_line_continues_in_the_next_row() {
        let word = "x".repeat(COLUMNS - 6);
        let terminal = output(&[&format!("first {word}"), "y z\r\n"]);
        let expected = [
            span(0, &format!("first {word}"), 10, Some(20)),
            span(0, "first ", 20, None),
            span(1, &format!("{word}y z"), 20, None),
        ];
        assert_eq!(terminal.spans, expected);
    }

    #[test]
    fn a_command_is_typed_into_a_row_of_its_own() {
        let mut terminal = output(&["killed"]);
        terminal.command("ls", "all");
        let typed = Line::Prompt { command: "ls".to_owned(), comment: "  # all".to_owned(), cursor: false };
        assert!(terminal.spans.iter().any(|span| span.row == 1 && span.line == typed && span.until.is_none()));
    }
}
