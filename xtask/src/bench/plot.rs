//! Plots of the figures as SVG, with one bar in each row and its name in front.
use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::{Figure, Goal, rounded};

#[cfg(test)]
pub(crate) type Plot = fn(&[Figure], &Path) -> Result<(), Box<dyn Error>>;
type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

const WIDTH: i32 = 960;
const ROW: i32 = 22;
const TOP: i32 = 48;
/// The start of the bars, and the length of the longest one.
const LEFT: i32 = 400;
const LENGTH: i32 = 330;

const OURS: RGBColor = RGBColor(38, 96, 164);
const MISSED: RGBColor = RGBColor(186, 60, 44);
const FLOOR: RGBColor = RGBColor(150, 150, 150);

/// Plots each figure as a share of its goal. A figure that is better than its goal ends before the line.
pub(crate) fn against_goals(figures: &[Figure], file: &Path) -> Result<(), Box<dyn Error>> {
    let rows: Vec<_> = figures.iter().filter_map(|figure| figure.goal.map(|goal| (figure, goal))).collect();
    let canvas = canvas(file, rows.len())?;
    title(&canvas, "How much of its goal each figure takes (the line is the goal)")?;
    // Twice the goal fills the width.
    let line = LEFT + LENGTH / 2;
    for (row, (figure, goal)) in rows.iter().enumerate() {
        let share = match goal {
            Goal::AtMost(limit) => figure.judged() / limit,
            Goal::AtLeast(limit) => limit / figure.judged(),
        };
        let missed = figure.met == Some(false);
        let label = format!("{} (goal {goal}){}", rounded(figure.judged()), if missed { ", missed" } else { "" });
        let length = (f64::from(LENGTH) * (share / 2.0).min(1.0)) as i32;
        bar(&canvas, row, (&figure.name, &label), length, if missed { MISSED } else { OURS })?;
    }
    let bottom = TOP + ROW * i32::try_from(rows.len())?;
    canvas.draw(&PathElement::new([(line, TOP - 4), (line, bottom)], BLACK.stroke_width(1)))?;
    Ok(canvas.present()?)
}

/// Plots each figure above its floor, with a separate scale for each pair.
pub(crate) fn beside_floors(figures: &[Figure], file: &Path) -> Result<(), Box<dyn Error>> {
    let rows: Vec<_> = figures.iter().filter_map(|figure| figure.floor.map(|floor| (figure, floor))).collect();
    let canvas = canvas(file, 2 * rows.len())?;
    title(&canvas, "Each figure above its floor (grey), to a scale of their own")?;
    for (row, (figure, floor)) in rows.iter().enumerate() {
        let longest = figure.value.max(*floor);
        let length = |value: f64| (f64::from(LENGTH) * value / longest) as i32;
        let label = |value: f64| format!("{} {}", rounded(value), figure.unit);
        bar(&canvas, 2 * row, (&figure.name, &label(figure.value)), length(figure.value), OURS)?;
        bar(&canvas, 2 * row + 1, ("", &label(*floor)), length(*floor), FLOOR)?;
    }
    Ok(canvas.present()?)
}

fn canvas(file: &Path, rows: usize) -> Result<Canvas<'_>, Box<dyn Error>> {
    let height = TOP + ROW * i32::try_from(rows)? + 12;
    let canvas = SVGBackend::new(file, (WIDTH.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
    canvas.fill(&WHITE)?;
    Ok(canvas)
}

fn title(canvas: &Canvas<'_>, text: &str) -> Result<(), Box<dyn Error>> {
    let style = ("sans-serif", 16).into_font().color(&BLACK);
    Ok(canvas.draw(&Text::new(text.to_owned(), (14, 14), style))?)
}

fn bar(
    canvas: &Canvas<'_>,
    row: usize,
    (name, label): (&str, &str),
    length: i32,
    color: RGBColor,
) -> Result<(), Box<dyn Error>> {
    let top = TOP + ROW * i32::try_from(row)?;
    let middle = top + ROW / 2;
    let font = ("sans-serif", 13).into_font().color(&BLACK);
    let (before, after) = (Pos::new(HPos::Right, VPos::Center), Pos::new(HPos::Left, VPos::Center));
    canvas.draw(&Text::new(name.to_owned(), (LEFT - 8, middle), font.pos(before)))?;
    canvas.draw(&Rectangle::new([(LEFT, top + 3), (LEFT + length, top + ROW - 3)], color.filled()))?;
    let font = ("sans-serif", 13).into_font().color(&BLACK);
    Ok(canvas.draw(&Text::new(label.to_owned(), (LEFT + length + 6, middle), font.pos(after)))?)
}
