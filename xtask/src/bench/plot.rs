//! Plots of the figures as SVG, with one bar in each row and its name in front.
use super::figures::{Figure, rounded};

const WIDTH: usize = 960;
const ROW: usize = 22;
const TOP: usize = 48;
/// The start of the bars, and the length of the longest one.
const LEFT: usize = 400;
const LENGTH: f64 = 330.0;

const OURS: &str = "#2660A4";
const MISSED: &str = "#BA3C2C";
const FLOOR: &str = "#969696";

/// Plots each figure as a share of its goal. A figure that is better than its goal ends before the line.
pub(super) fn against_goals(figures: &[Figure]) -> String {
    let mut rows = Vec::new();
    for (figure, (goal, share)) in figures.iter().filter_map(|figure| Some((figure, figure.goal.as_ref()?))) {
        let missed = figure.met == Some(false);
        let label = format!("{} (goal {goal}){}", rounded(figure.judged()), if missed { ", missed" } else { "" });
        // Twice the goal fills the width.
        rows.push((figure.name.as_str(), label, (share / 2.0).min(1.0), if missed { MISSED } else { OURS }));
    }
    let (line, bottom) = (LEFT + LENGTH as usize / 2, TOP + ROW * rows.len());
    let line = format!("<path d=\"M{line} {}V{bottom}\" stroke=\"#000000\"/>\n", TOP - 4);
    svg("How much of its goal each figure takes (the line is the goal)", &rows, &line)
}

/// Plots each figure above its floor, with a separate scale for each pair.
pub(super) fn beside_floors(figures: &[Figure]) -> String {
    let mut rows = Vec::new();
    for (figure, floor) in figures.iter().filter_map(|figure| Some((figure, figure.floor?))) {
        let longest = figure.value.max(floor);
        let label = |value: f64| format!("{} {}", rounded(value), figure.unit);
        rows.push((figure.name.as_str(), label(figure.value), figure.value / longest, OURS));
        rows.push(("", label(floor), floor / longest, FLOOR));
    }
    svg("Each figure above its floor (grey), to a scale of their own", &rows, "")
}

/// Draws rows of a name, a label, the share of the longest bar, and a color.
fn svg(title: &str, rows: &[(&str, String, f64, &str)], line: &str) -> String {
    let height = TOP + ROW * rows.len() + 12;
    let text = |(x, y): (usize, usize), size: u8, anchor: &str, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        format!(
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.5ex\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" \
             font-size=\"{size}\">{text}</text>\n"
        )
    };
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n{}",
        text((14, 19), 13, "start", title)
    );
    for (row, (name, label, share, color)) in rows.iter().enumerate() {
        let (top, length) = (TOP + ROW * row, (LENGTH * share) as usize);
        svg += &text((LEFT - 8, top + ROW / 2), 10, "end", name);
        svg += &format!(
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"{length}\" height=\"{}\" fill=\"{color}\"/>\n",
            top + 3,
            ROW - 6
        );
        svg += &text((LEFT + length + 6, top + ROW / 2), 10, "start", label);
    }
    svg + line + "</svg>\n"
}
