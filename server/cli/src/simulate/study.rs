//! Runs a study of a workload: policies, rates, capacities, and the bound.

use charts::{Note, percent};
use sim::{Bound, Capacity, Estimate, Report, Search, Setup, SimError};
use workload::Workload;

use super::candidate::Candidate;
use super::runs::Bar;

/// Multiples of the workload's rate that show how a policy performs under more and less traffic.
pub const SCALES: [f64; 12] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0];
/// Approximate number of runs of a capacity search, for the progress bar.
const TRIALS: usize = 10;

/// Error of predictions without interference, in percent, above which interference is reported.
const INTERFERENCE_REPORTED: f64 = 1.0;

/// What to run.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    pub workload: &'a Workload,
    /// The policies to run; at least one.
    pub candidates: &'a [Candidate],
    /// Number of seeds for every policy: the workload's seed and the following ones.
    pub seeds: u64,
    /// Multiples of the rate at which each policy also runs.
    pub scales: &'a [f64],
    /// Number of seeds for the capacity search; 0 skips it.
    pub capacity_seeds: usize,
    /// Maximum number of concurrent runs.
    pub threads: usize,
}

/// One policy's results.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Name of the policy with its options.
    pub label: String,
    /// Index of its colour in plots.
    pub colour: usize,
    /// One report for each seed.
    pub reports: Vec<Report>,
    /// Offered requests per second, mean over the seeds.
    pub offered: f64,
    /// Requests per second that were answered before their deadline.
    pub goodput: Estimate,
    /// Goodput divided by offered load, 0 to 1.
    pub attainment: Estimate,
    /// Offered requests per second and attainment, ascending, with the first seed.
    pub sweep: Vec<(f64, f64)>,
    /// Highest rate with 99 % attainment.
    pub capacity: Option<Capacity>,
}

impl Standing {
    /// The run with the workload's own seed.
    pub fn first(&self) -> Option<&Report> {
        self.reports.first()
    }

    /// Order before goodput: with devices, the policies that keep their objectives by the cost of their devices, then
    /// the others.
    fn rank(&self) -> f64 {
        let costs = self.reports.iter().map(|run| run.partition.as_ref().map(|figures| figures.cost_seconds));
        let costs: Vec<f64> = costs.map(Option::unwrap_or_default).collect();
        if self.attainment.mean >= sim::page::KEPT { Estimate::of(&costs).mean } else { f64::INFINITY }
    }

    /// Whether the goodput does not differ significantly: the 95 % confidence interval of the difference, seed by seed,
    /// contains zero. With the same seed, both policies receive the same requests.
    pub fn ties(&self, other: &Self) -> bool {
        let pairs = self.reports.iter().zip(&other.reports);
        let difference =
            Estimate::of(&pairs.map(|(ours, theirs)| ours.goodput - theirs.goodput).collect::<Vec<_>>());
        difference.mean.abs() <= difference.margin.unwrap_or(0.0)
    }
}

/// All results, the best policy first.
#[derive(Clone, Debug)]
pub struct Study {
    pub workload: Workload,
    pub seeds: Vec<u64>,
    /// Policies by goodput, then in the order of the command line. With devices, those that keep their objectives come
    /// first, by the cost of their devices.
    pub standings: Vec<Standing>,
    /// Upper bound for every policy; rates are means over the seeds.
    pub bound: Bound,
    /// Notes on the reliability of the figures.
    pub notes: Vec<Note>,
}

enum Job<'a> {
    Run { setup: &'a Setup, workload: Box<Workload> },
    Capacity { setup: &'a Setup },
}

enum Found {
    Run(Box<Report>),
    Capacity(Capacity),
}

/// Runs the study. The result does not depend on the number of threads.
pub fn run(query: &Query<'_>, bar: &Bar) -> Result<Study, SimError> {
    let first = query.workload.seed;
    let seeds: Vec<u64> = (0..query.seeds).map(|step| first.wrapping_add(step)).collect();
    let jobs = jobs(query, &seeds)?;
    let tried = seeds.get(..query.capacity_seeds).unwrap_or(&seeds);
    let found = sim::abreast(query.threads, &jobs, |job| match job {
        Job::Run { setup, workload } => bar.run(workload, setup).map(Box::new).map(Found::Run),
        Job::Capacity { setup } => {
            let found = sim::capacity(query.workload, setup, &Search::default(), tried, &mut |_| {});
            bar.skip(TRIALS);
            found.map(Found::Capacity)
        }
    })?;
    let mut standings = assemble(query, &seeds, found);
    standings.sort_by(|a, b| a.rank().total_cmp(&b.rank()).then(b.goodput.mean.total_cmp(&a.goodput.mean)));
    let mut notes = notes(&standings);
    for standing in &standings {
        notes.extend(standing.first().map(|run| device_notes(&standing.label, run)).unwrap_or_default());
    }
    if let Some(partition) = &query.workload.partition {
        let slow = partition.devices.iter().any(|devices| devices.section.interference.is_some());
        if !slow {
            notes.push(note(ASSUMPTIONS, "", "co-located gpulets do not slow each other down".to_owned()));
        }
        notes.push(note(ASSUMPTIONS, "", "planning takes no time".to_owned()));
    }
    let bound = bound(query.workload, &seeds)?;
    Ok(Study { workload: query.workload.clone(), bound, seeds, standings, notes })
}

fn bound(workload: &Workload, seeds: &[u64]) -> Result<Bound, SimError> {
    let mut bound = sim::bound(workload)?;
    let others = seeds.iter().skip(1).map(|seed| sim::bound(&workload.with_seed(*seed)));
    let others: Vec<Bound> = others.collect::<Result<_, _>>()?;
    let mean =
        |of: fn(&Bound) -> f64| (of(&bound) + others.iter().map(of).sum::<f64>()) / (1 + others.len()) as f64;
    let means =
        (mean(|bound| bound.goodput), mean(|bound| bound.attainment), mean(|bound| bound.offered_rate));
    (bound.goodput, bound.attainment, bound.offered_rate) = means;
    Ok(bound)
}

/// Policy by policy: its seeds, its rates, its capacity.
fn jobs<'a>(query: &Query<'a>, seeds: &[u64]) -> Result<Vec<Job<'a>>, SimError> {
    let scaled =
        query.scales.iter().map(|scale| query.workload.scaled(*scale)).collect::<Result<Vec<_>, _>>()?;
    let mut jobs = Vec::new();
    for candidate in query.candidates {
        let setup = &candidate.setup;
        let run = |workload| Job::Run { setup, workload: Box::new(workload) };
        jobs.extend(seeds.iter().map(|seed| run(query.workload.with_seed(*seed))));
        jobs.extend(scaled.iter().map(|workload| run(workload.clone())));
        jobs.extend((query.capacity_seeds > 0).then_some(Job::Capacity { setup }));
    }
    Ok(jobs)
}

/// Approximate number of runs of all jobs.
pub fn runs(query: &Query<'_>) -> usize {
    let capacity = if query.capacity_seeds > 0 { TRIALS } else { 0 };
    let seeds = usize::try_from(query.seeds).unwrap_or(usize::MAX);
    query.candidates.len() * seeds.saturating_add(query.scales.len() + capacity)
}

fn assemble(query: &Query<'_>, seeds: &[u64], found: Vec<Found>) -> Vec<Standing> {
    let mut found = found.into_iter();
    let each = query.candidates.iter().map(|candidate| {
        let count = seeds.len() + query.scales.len() + usize::from(query.capacity_seeds > 0);
        let (mut reports, mut capacity) = (Vec::new(), None);
        for part in found.by_ref().take(count) {
            match part {
                Found::Run(report) => reports.push(*report),
                Found::Capacity(rate) => capacity = Some(rate),
            }
        }
        let others = reports.split_off(seeds.len().min(reports.len()));
        let estimate = |of: fn(&Report) -> f64| Estimate::of(&reports.iter().map(of).collect::<Vec<_>>());
        Standing {
            label: candidate.setup.label.clone(),
            colour: candidate.colour,
            offered: estimate(|run| run.offered_rate).mean,
            goodput: estimate(|run| run.goodput),
            attainment: estimate(|run| run.attainment),
            sweep: sweep(&reports, &others),
            capacity,
            reports,
        }
    });
    each.collect()
}

fn sweep(reports: &[Report], others: &[Report]) -> Vec<(f64, f64)> {
    if others.is_empty() {
        return Vec::new();
    }
    let mut points: Vec<_> =
        reports.iter().take(1).chain(others).map(|run| (run.offered_rate, run.attainment)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Kind of the notes on what the simulation leaves out.
const ASSUMPTIONS: &str = "Assumptions";

fn note(kind: &str, about: &str, text: String) -> Note {
    Note { kind: kind.to_owned(), about: about.to_owned(), text }
}

/// Notes on stopped runs and on searches without result.
fn notes(standings: &[Standing]) -> Vec<Note> {
    let mut notes = Vec::new();
    for standing in standings {
        let stopped = standing.reports.iter().find_map(|run| run.stopped.map(|stopped| (run.seed, stopped)));
        if let Some((seed, stopped)) = stopped {
            notes.push(note(
                "Runs that were stopped at their bound",
                &standing.label,
                format!(
                    "stopped at its bound of {} events, after {:.1} s of virtual time (seed {seed}): figures are of what was run until then; --max-events allows more",
                    stopped.max_events, stopped.at_s
                ),
            ));
        }
        if let Some(capacity) = standing.capacity.as_ref().filter(|capacity| !capacity.settled) {
            let text = format!("the capacity was not settled in {} trials", capacity.trials.len());
            notes.push(note("Capacities that were not settled", &standing.label, text));
        }
    }
    notes
}

/// Notes on the devices of a run.
fn device_notes(label: &str, run: &Report) -> Vec<Note> {
    let Some(figures) = &run.partition else { return Vec::new() };
    let mut notes = Vec::new();
    if figures.share_least < 1.0 {
        let text = format!(
            "the {} devices were too few at times: plans covered as little as {} of the wanted rates",
            figures.devices,
            percent(figures.share_least)
        );
        notes.push(note("Too few devices", label, text));
    }
    for known in &figures.interference {
        let (Some(error), Some(none)) = (known.error, known.error_uncorrected) else { continue };
        if none.mean_pct >= INTERFERENCE_REPORTED {
            let text = format!(
                "batch times under contention on `{}` were predicted with a mean error of {:.1} % ({:.1} % at the 90th \
                 percentile); {:.1} % ({:.1} %) without a model of interference",
                known.device_type, error.mean_pct, error.p90_pct, none.mean_pct, none.p90_pct
            );
            notes.push(note("Predictions under contention", label, text));
        }
    }
    if let Some(problem) = &figures.problem {
        notes.push(note("Plans that were not applied", label, format!("a plan was not applied: {problem}")));
    }
    notes
}
