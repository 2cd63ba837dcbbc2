//! A comparison for the terminal.

use std::fmt::Write as _;

use charts::{number, percent};
use comfy_table::{Cell, CellAlignment, Color};

use super::{Comparison, Row, Verdict};
use crate::table::{alarm, table};

/// Models that are listed.
const MODELS_MAX: usize = 50;

impl Comparison {
    /// Both runs and every figure with its ratio and what that means, for people. Lines end in a line feed; ANSI
    /// colours only if asked for.
    pub fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        if !self.load_differs.is_empty() {
            let _ =
                writeln!(text, "{} {}\n", alarm("not the same load:", colour), self.load_differs.join("; "));
        }
        for (name, side) in [("a", &self.a), ("b", &self.b)] {
            let _ = writeln!(text, "{name}: {}: {}\n   {}", side.workload, side.server, side.drive);
        }
        let mut cells: Vec<Vec<Cell>> = Vec::new();
        let (mut of, mut models, mut shown) = (None, 0, 0);
        for row in &self.rows {
            if row.model.is_some() && row.model != of {
                of.clone_from(&row.model);
                models += 1;
                if models <= MODELS_MAX {
                    cells.push(vec![Cell::new(row.model.as_deref().unwrap_or_default())]);
                }
            }
            if models <= MODELS_MAX {
                shown += usize::from(row.interval.is_some());
                cells.push(line(row));
            }
        }
        let header = ["all models", "a", "b", "b/a", "95 % interval", ""];
        let _ = write!(text, "\n{}", table(&header, cells, colour));
        if models > MODELS_MAX {
            let _ = writeln!(text, "and {} more models", models - MODELS_MAX);
        }
        let how = if self.paired {
            "compared in pairs, because the load followed the same course"
        } else {
            "each run on its own, because the load did not follow the same course"
        };
        let _ = writeln!(text, "\nnoise from the runs' own seconds; {how}");
        if shown > 0 {
            let _ = writeln!(text, "of {shown} intervals about one in twenty leaves out 1 by chance alone");
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "{} {warning}", alarm("warning:", colour));
        }
        text
    }
}

fn line(row: &Row) -> Vec<Cell> {
    let show: fn(f64) -> String = if row.metric.is_share() { percent } else { number };
    let value = |value: Option<f64>| Cell::new(value.map_or_else(|| "-".to_owned(), show));
    let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
    let interval =
        row.interval.map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}"));
    let word = match row.verdict {
        Verdict::WithinNoise => Cell::new("within noise"),
        Verdict::Better => Cell::new("better").fg(Color::DarkGreen),
        Verdict::Worse => Cell::new("worse").fg(Color::DarkRed),
        Verdict::TooShort => Cell::new("too short to tell"),
        Verdict::Unknown => Cell::new("noise not known"),
    };
    vec![
        Cell::new(format!("  {}", row.metric.name())),
        value(row.a),
        value(row.b),
        Cell::new(ratio),
        Cell::new(interval),
        word.set_alignment(CellAlignment::Left),
    ]
}
