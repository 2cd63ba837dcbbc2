//! The path of a search as a picture.

use charts::{Plot, Reference, Series};

/// One trial: its rows per second and whether they meet the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub rows_per_s: f64,
    pub feasible: bool,
}

/// Rows per second of each trial of a search, and the best so far.
pub fn plot(title: String, steps: &[Step], default: Option<f64>) -> Plot {
    let number = |at: usize| at.saturating_add(1) as f64;
    let dots = |feasible: bool| {
        let of = steps.iter().enumerate().filter(|(_, step)| step.feasible == feasible);
        of.map(|(at, step)| (number(at), step.rows_per_s)).collect::<Vec<_>>()
    };
    // The best changes at a trial and not between two.
    let (mut best, mut line) = (f64::NAN, Vec::with_capacity(2 * steps.len()));
    for (at, step) in steps.iter().enumerate() {
        line.push((number(at), best));
        if step.feasible {
            best = best.max(step.rows_per_s);
        }
        line.push((number(at), best));
    }
    let mut series = vec![
        Series { name: "best so far".to_owned(), colour: None, strong: true, points: line },
        Series::new("trial", Some(0), dots(true)),
        Series::new("trial that misses the objective", Some(1), dots(false)),
    ];
    series.retain(|series| !series.points.is_empty());
    Plot {
        title,
        horizontal: "trial".to_owned(),
        vertical: "rows/s".to_owned(),
        series,
        level: default.map(|value| Reference::new("default settings", value)).into_iter().collect(),
        scattered: true,
        ..Plot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_so_far_counts_only_what_meets_the_objective() {
        let step = |rows_per_s, feasible| Step { rows_per_s, feasible };
        let steps = [step(9.0, false), step(3.0, true), step(2.0, true), step(5.0, true)];
        let plot = plot("t".to_owned(), &steps, Some(4.0));
        let line = plot.series[0].points.iter().filter(|point| !point.1.is_nan());
        let line: Vec<(f64, f64)> = line.copied().collect();
        assert_eq!(
            line,
            [(2.0, 3.0), (3.0, 3.0), (3.0, 3.0), (4.0, 3.0), (4.0, 5.0)],
            "a step at the fourth trial"
        );
        assert_eq!((plot.series[1].points.len(), plot.series[2].points.len()), (3, 1));
        assert!(charts::file(&plot).starts_with("<svg"));
    }
}
