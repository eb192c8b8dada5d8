//! The first page of the figures: its table and its plots, which `docs/benchmarks/overview.json` names.
use std::collections::BTreeMap;

use serde_json::Value;

use super::figures::{Figure, between, rounded};

const WIDTH: usize = 960;
const ROW: usize = 24;
const TOP: usize = 48;
/// The start of the bars, and the length of the longest one.
const LEFT: usize = 330;
const LENGTH: f64 = 380.0;
/// A bar of a larger ratio ends here, with an ellipsis.
const LARGEST: f64 = 2.0;

/// The chosen figures, and all figures by bench and name.
pub(super) struct Overview {
    pub(super) chosen: Value,
    pub(super) figures: BTreeMap<(String, String), Figure>,
}

impl Overview {
    /// Returns each plot with the name of its file.
    pub(super) fn plots(&self) -> Result<Vec<(String, String)>, String> {
        let plots = self.chosen["plots"].as_array().into_iter().flatten();
        plots.map(|plot| Ok((format!("{}.svg", text_of(&plot["file"])), self.plot(plot)?))).collect()
    }

    /// Returns the page with a new table.
    pub(super) fn page(&self, page: &str) -> Result<String, String> {
        let mut table = String::from("| figure | this library | beside it | ratio |\n|---|---|---|---|\n");
        for (label, Figure { value, unit, floor, ratio, .. }) in self.rows(&self.chosen["table"])? {
            let number = |figure: &Option<f64>| figure.map_or_else(String::new, rounded);
            table += &format!("| {label} | {} {unit} | {} | {} |\n", rounded(*value), number(floor), number(ratio));
        }
        between(page, "<!-- overview: written by `cargo xtask bench … --write` -->\n", &table, "<!-- /overview -->\n")
    }

    /// Returns the label and the figure of each row, which names its label, bench and figure.
    fn rows<'a>(&'a self, rows: &'a Value) -> Result<Vec<(&'a str, &'a Figure)>, String> {
        let row = |row: &'a Value| {
            let [label, bench, name] = [0, 1, 2].map(|at| text_of(&row[at]));
            let figure = self.figures.get(&(bench.to_owned(), name.to_owned()));
            Ok((label, figure.ok_or_else(|| format!("overview.json: bench `{bench}` has no figure `{name}`"))?))
        };
        rows.as_array().into_iter().flatten().map(row).collect()
    }

    /// Draws a bar for each row: `speed` is the throughput as a share of the floor's, `cost` the cost as a share of it, and `value`
    /// the share of the largest value.
    fn plot(&self, plot: &Value) -> Result<String, String> {
        let rows = self.rows(&plot["rows"])?;
        let largest = rows.iter().map(|(_, figure)| figure.value).fold(0.0, f64::max);
        let height = TOP + ROW * rows.len() + 12;
        let mut svg = format!(
            "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n{}",
            text((14, 20), "start", text_of(&plot["title"]))
        );
        let mut texts = String::new();
        for (row, (label, figure)) in rows.iter().enumerate() {
            let (top, ratio) = (TOP + ROW * row, figure.ratio.unwrap_or(f64::NAN));
            let value = format!("{} {}", rounded(figure.value), figure.unit);
            let (share, beside) = match text_of(&plot["bar"]) {
                "value" => (figure.value / largest, value),
                "speed" if !figure.unit.ends_with("/s") => {
                    (1.0 / ratio / LARGEST, format!("{:.2} ({value})", 1.0 / ratio))
                }
                _ => (ratio / LARGEST, format!("{ratio:.2} ({value})")),
            };
            let length = (LENGTH * share.min(1.0)) as usize;
            let beside = if share > 1.0 { format!("… {beside}") } else { beside };
            let (y, thick) = (top + 4, ROW - 8);
            texts += &text((LEFT - 8, top + ROW / 2), "end", label);
            svg += &format!("<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length}\" height=\"{thick}\" fill=\"#2660A4\"/>\n");
            texts += &text((LEFT + length + 6, top + ROW / 2), "start", &beside);
        }
        if plot["bar"] != "value" {
            let (line, bottom) = (LEFT + (LENGTH / LARGEST) as usize, TOP + ROW * rows.len());
            svg += &format!("<path d=\"M{line} {}V{bottom}\" stroke=\"#969696\"/>\n", TOP - 4);
        }
        Ok(svg + &texts + "</svg>\n")
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn text((x, y): (usize, usize), anchor: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<text x=\"{x}\" y=\"{y}\" dy=\"0.5ex\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"12\" paint-order=\"stroke\" stroke=\"#FFFFFF\" stroke-width=\"4\">{text}</text>\n"
    )
}
