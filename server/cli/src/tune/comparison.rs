//! All searches on the trials of one file: nothing is measured.

use std::path::Path;

use anyhow::Context as _;
use charts::{Plot, Series};
use models::TimeSpan;
use node::output;
use serde::Serialize;
use tuning::{
    Engine, Limits, Measurement, Objective, Settings, Space, Surface, WORDS, compared_trials, replay, search,
};

use super::arguments::TuneArgs;
use super::grid_file::{Cell, Conditions, of_other_model, read};

/// Seeds of each search.
const SEEDS: u64 = 20;
/// A search has found the best within this share of it.
const WITHIN: f64 = 0.01;
/// Trials that the picture shows.
const SHOWN: usize = 60;

/// How a search did.
#[derive(Debug, Serialize)]
struct Row {
    search: &'static str,
    /// Mean and median number of trials to within 1 % of the best; all trials where it never was.
    mean_trials: f64,
    median_trials: f64,
    /// Part of the seeds that never came within 1 %.
    never: f64,
    /// Mean of the best so far after each trial, as a share of the best of the file.
    reached: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Answer {
    model: String,
    slo_ms: f64,
    configurations: usize,
    best_rows_per_s: f64,
    searches: Vec<Row>,
    notes: Vec<String>,
}

/// Compares all searches on a complete file of trials.
pub fn run(arguments: &TuneArgs, path: &Path, slo: TimeSpan) -> anyhow::Result<()> {
    let (conditions, cells) = read("--grid", path)?;
    anyhow::ensure!(
        conditions.model == arguments.model,
        "--grid: `{}` has trials of model `{}`: expected those of `{}`",
        path.display(),
        conditions.model,
        arguments.model
    );
    let space = space_of(&conditions, &cells);
    let mut table = vec![None; space.len()];
    let mut tried = vec![false; space.len()];
    for cell in &cells {
        let index = cell.configuration().and_then(|configuration| space.index(configuration));
        if let Some(index) = index {
            set(&mut table, index, cell.measurement());
            set(&mut tried, index, true);
        }
    }
    let open = tried.iter().filter(|tried| !**tried).count();
    anyhow::ensure!(
        open == 0,
        "--compare: `{}` lacks {open} of {} configurations: measure them with --search grid --budget {open}",
        path.display(),
        space.len()
    );
    let others = arguments.from.iter().map(|path| Ok(surface(&space, &of_other_model(path, &conditions)?)));
    let others: Vec<Surface> = others.collect::<anyhow::Result<_>>()?;
    let objective = Objective { slo_us: slo.0.as_secs_f64() * 1e6 };
    let best = table.iter().flatten().map(|one| objective.worth(one)).fold(0.0, f64::max);
    anyhow::ensure!(best > 0.0, "--slo: no configuration of `{}` meets {slo}", path.display());
    let (mut searches, mut notes) = (Vec::new(), Vec::new());
    for (word, _) in WORDS {
        match row(word, &space, objective, &others, &table) {
            Ok(row) => searches.push(row),
            Err(reason) => notes.push(reason),
        }
    }
    let answer = Answer {
        model: conditions.model,
        slo_ms: slo.0.as_secs_f64() * 1e3,
        configurations: space.len(),
        best_rows_per_s: best,
        searches,
        notes,
    };
    let picture = charts::file(&plot(&answer));
    if let Some(path) = &arguments.svg {
        std::fs::write(path, picture).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    if arguments.json {
        output::line(&serde_json::to_string(&answer)?);
    } else {
        output::write(text(&answer, slo).as_bytes());
    }
    Ok(())
}

fn set<T>(values: &mut [T], index: usize, value: T) {
    if let Some(slot) = values.get_mut(index) {
        *slot = value;
    }
}

fn space_of(conditions: &Conditions, cells: &[Cell]) -> Space {
    let batches: Vec<u32> = cells.iter().map(|cell| cell.batch).collect();
    let is_there = |engine: &Engine| cells.iter().any(|cell| cell.engine == engine.as_str());
    let engines: Vec<Engine> = Engine::EACH.into_iter().filter(is_there).collect();
    Space::new(conditions.cores, &batches, &engines)
}

/// Trials of another model in this space.
pub fn surface(space: &Space, cells: &[Cell]) -> Surface {
    let known =
        cells.iter().filter_map(|cell| Some((space.index(cell.configuration()?)?, cell.measurement()?)));
    known.collect()
}

fn row(
    word: &'static str,
    space: &Space,
    objective: Objective,
    others: &[Surface],
    table: &[Option<Measurement>],
) -> Result<Row, String> {
    let (mut trials, mut never, mut reached) = (Vec::new(), 0_u32, vec![0.0; SHOWN.min(space.len())]);
    for seed in 1..=SEEDS {
        let mut chosen = search(word, &Settings { space, objective, seed, others })?;
        let limits = Limits { trials: compared_trials(word, space), least: SHOWN, within: WITHIN };
        let Some(path) = replay(chosen.as_mut(), table, objective, limits) else { continue };
        never = never.saturating_add(u32::from(path.trials_to(WITHIN).is_none()));
        trials.push(path.trials_to(WITHIN).unwrap_or(space.len()) as f64);
        for (at, sum) in reached.iter_mut().enumerate() {
            *sum += (1.0 - path.regret_after(at.saturating_add(1))) / SEEDS as f64;
        }
    }
    trials.sort_by(f64::total_cmp);
    let count = trials.len().max(1);
    Ok(Row {
        search: word,
        mean_trials: trials.iter().sum::<f64>() / count as f64,
        median_trials: trials.get(count / 2).copied().unwrap_or(f64::NAN),
        never: f64::from(never) / count as f64,
        reached,
    })
}

fn text(answer: &Answer, slo: TimeSpan) -> String {
    let after = |row: &Row, trials: usize| {
        let reached = row.reached.get(trials.saturating_sub(1)).or(row.reached.last()).copied();
        format!("{:.1} %", 100.0 * (1.0 - reached.unwrap_or(0.0)))
    };
    let rows = answer.searches.iter().map(|row| {
        vec![
            row.search.to_owned(),
            format!("{:.1}", row.mean_trials),
            format!("{:.0}", row.median_trials),
            after(row, 10),
            after(row, 30),
        ]
    });
    let header = ["search", "mean trials to 1 %", "median", "missing after 10", "after 30"];
    let mut text = output::table(&header, rows.collect::<Vec<_>>());
    text.push_str(&format!(
        "\n{}: the best of {} configurations within {slo} serves {:.1} rows/s; {SEEDS} seeds\n",
        answer.model, answer.configurations, answer.best_rows_per_s
    ));
    for note in &answer.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn plot(answer: &Answer) -> Plot {
    let lines = answer.searches.iter().enumerate().map(|(colour, row)| {
        let points = row.reached.iter().enumerate().map(|(at, reached)| (at as f64 + 1.0, 100.0 * reached));
        Series::new(row.search, Some(colour), points.collect())
    });
    Plot {
        title: format!("{}: best so far, mean of {SEEDS} seeds", answer.model),
        horizontal: "trials".to_owned(),
        vertical: "% of the best".to_owned(),
        series: lines.collect(),
        ..Plot::default()
    }
}
