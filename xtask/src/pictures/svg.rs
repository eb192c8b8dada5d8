//! A terminal as an animated SVG. A viewer without animations shows the last screen.
use std::collections::BTreeMap;
use std::fmt::Write;

use super::terminal::{COLUMNS, Line, Span, Terminal};

/// The visible rows.
const ROWS: usize = 26;

/// The geometry in pixels. The width of a character is that of the widest common font.
const FONT: f64 = 14.0;
const CHARACTER: f64 = 8.45;
const ROW: f64 = 20.0;
const MARGIN: f64 = 14.0;
const BAR: f64 = 30.0;

const STYLE: &str = "\
text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}
.p{fill:#3fb950}.c{fill:#fff;font-weight:600}.n{fill:#8b949e}
.k{animation-duration:var(--d);animation-iteration-count:infinite;animation-timing-function:step-end}
@media(prefers-reduced-motion:reduce){.k{animation:none!important}}
";

/// Returns the animation, which repeats.
pub(super) fn animation(title: &str, terminal: &Terminal) -> String {
    let (width, height) = (COLUMNS as f64 * CHARACTER + 2.0 * MARGIN, ROWS as f64 * ROW + BAR + 2.0 * MARGIN);
    let (mut keyframes, mut lines) = (String::new(), String::new());
    // Lines with the same times share an animation.
    let mut groups: BTreeMap<(u64, Option<u64>), Vec<&Span>> = BTreeMap::new();
    for span in &terminal.spans {
        groups.entry((span.from, span.until)).or_default().push(span);
    }
    for (number, ((from, until), spans)) in groups.iter().enumerate() {
        let end = until.map_or_else(String::new, |until| format!("{}{{visibility:hidden}}", percent(until, terminal)));
        let start = percent(*from, terminal);
        // Writing to a string cannot fail.
        let _ =
            writeln!(keyframes, "@keyframes k{number}{{0%{{visibility:hidden}}{start}{{visibility:visible}}{end}}}");
        let hidden = if until.is_some() { ";visibility:hidden" } else { "" };
        let _ = writeln!(lines, "<g class=\"k\" style=\"animation-name:k{number}{hidden}\">");
        for span in spans {
            lines.push_str(&text(span));
        }
        lines.push_str("</g>\n");
    }
    let (scrolls, last) = scrolls(terminal);
    let seconds = terminal.now as f64 / 1000.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" font-size=\"{FONT}\">\n<title>{title}</title>\n<style>\n{STYLE}svg{{--d:{seconds:.2}s}}\n\
         {keyframes}{scrolls}</style>\n{frame}\
         <svg x=\"{MARGIN}\" y=\"{top}\" width=\"{inner:.0}\" height=\"{visible:.0}\" xml:space=\"preserve\">\n\
         <g class=\"k\" style=\"animation-name:s;transform:translateY({last}px)\">\n{lines}</g>\n</svg>\n</svg>\n",
        frame = frame(width, height),
        top = BAR + MARGIN,
        inner = width - 2.0 * MARGIN,
        visible = ROWS as f64 * ROW,
    )
}

/// Returns the window around the terminal.
fn frame(width: f64, height: f64) -> String {
    let (right, bottom) = (width - 1.0, height - 1.0);
    let dots: String = [("#ff5f57", 20), ("#febc2e", 40), ("#28c840", 60)]
        .iter()
        .map(|(color, x)| format!("<circle cx=\"{x}\" cy=\"16\" r=\"6\" fill=\"{color}\"/>"))
        .collect();
    format!(
        "<rect x=\".5\" y=\".5\" width=\"{right:.0}\" height=\"{bottom:.0}\" rx=\"8\" fill=\"#0d1117\" stroke=\"#484f58\"/>\n\
         <path d=\"M.5 {BAR}h{right:.0}\" stroke=\"#30363d\"/>\n{dots}\n"
    )
}

fn text(span: &Span) -> String {
    let y = span.row as f64 * ROW + 15.0;
    let content = match &span.line {
        Line::Output(text) => escaped(text),
        Line::Prompt { command, comment, cursor } => {
            let cursor = if *cursor { "▌" } else { "" };
            format!(
                "<tspan class=\"p\">$ </tspan><tspan class=\"c\">{}</tspan><tspan class=\"n\">{}{cursor}</tspan>",
                escaped(command),
                escaped(comment)
            )
        }
    };
    format!("<text y=\"{y}\">{content}</text>\n")
}

/// Returns the animation that keeps the last row visible, and its last position.
fn scrolls(terminal: &Terminal) -> (String, f64) {
    let mut steps = BTreeMap::new();
    for (row, time) in terminal.rows.iter().enumerate().skip(ROWS) {
        steps.insert(*time, -((row + 1 - ROWS) as f64 * ROW));
    }
    let last = steps.values().last().copied().unwrap_or_default();
    let steps: String =
        steps.iter().map(|(time, y)| format!("{}{{transform:translateY({y}px)}}", percent(*time, terminal))).collect();
    (format!("@keyframes s{{0%{{transform:translateY(0)}}{steps}}}\n"), last)
}

fn percent(time: u64, terminal: &Terminal) -> String {
    format!("{:.3}%", time as f64 * 100.0 / terminal.now as f64)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
