//! Random pipelines under several ways to divide their objective: `cargo run --release -p sim --example pipelines -- FIRST LAST`, with
//! the first and the last seed. Each line has the shares of requests in time, in percent.

use std::error::Error;

use router_core::batch::{BatchOptions, Policy};
use sim::{Setup, Simulation};
use workload::Workload;

/// Name, `split` and `deadlines`, which is empty if the simulation chooses it.
const WAYS: [(&str, &str, &str); 7] = [
    ("ours: planned", "plan", ""),
    ("end-to-end, Nexus", "nexus", "end_to_end"),
    ("end-to-end, even", "even", "end_to_end"),
    ("even split", "even", "static"),
    ("Nexus' split", "nexus", "static"),
    ("per stage, Nexus", "nexus", "per_stage"),
    ("per stage, even", "even", "per_stage"),
];
/// Distance to the best that counts as being behind.
const BEHIND: f64 = 0.005;

/// What came of one way over all seeds.
#[derive(Clone, Copy, Default)]
struct Sum {
    attainment: f64,
    worst: f64,
    behind: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds: Vec<u64> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let &[first, last] = seeds.as_slice() else { return Err("expected the first and the last seed".into()) };
    let mut sums = [Sum::default(); WAYS.len()];
    for seed in first..=last {
        let row = WAYS.iter().map(|(_, split, deadlines)| attainment(seed, split, deadlines));
        let row = row.collect::<Result<Vec<f64>, _>>()?;
        let best = row.iter().copied().fold(0.0, f64::max);
        let shown: Vec<String> = row.iter().map(|value| format!("{:6.2}", 100.0 * value)).collect();
        println!("{seed:>4} {}", shown.join(" "));
        for (sum, value) in sums.iter_mut().zip(row) {
            sum.attainment += value;
            sum.worst = sum.worst.max(best - value);
            sum.behind += u32::from(best - value > BEHIND);
        }
    }
    let count = last.saturating_sub(first) as f64 + 1.0;
    for ((name, ..), Sum { attainment, worst, behind }) in WAYS.iter().zip(sums) {
        let (mean, worst) = (100.0 * attainment / count, 100.0 * worst);
        println!("{name:<22} mean {mean:6.2} %  worst gap {worst:5.2} points  behind by > 0.5: {behind}");
    }
    Ok(())
}

fn attainment(seed: u64, split: &str, deadlines: &str) -> Result<f64, Box<dyn Error>> {
    let deadlines =
        if deadlines.is_empty() { String::new() } else { format!("\ndeadlines = \"{deadlines}\"") };
    let way = format!("\nsplit = \"{split}\"{deadlines}\nstages = [");
    let text = workload::random::pipeline_document(seed).replace("\nstages = [", &way);
    let workload = Workload::parse(&text, &mut |_| Err("no files".to_owned()))?;
    let setup = Setup::new(Policy::new("deadline", &BatchOptions::default())?);
    Ok(Simulation::new(&workload, &setup)?.run(&mut |_| {})?.attainment)
}
