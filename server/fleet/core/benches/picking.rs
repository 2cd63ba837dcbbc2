//! Measures how many decisions a picker makes in a second on one core: `cargo bench -p fleet-core --bench picking [-- NODES MODELS]`.
//! There are no thresholds, because machines differ.
//!
//! Each of the nodes has a share of the models. Requests arrive at 80 % of what the nodes can run, on a clock of the benchmark's own, and
//! end when their batch would. Every 100 ms, each node says what it has. A decision is everything that a request costs: its arrival, its
//! answer and its end, with its part of the timers and views.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and fails by panicking"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use fleet_core::pick::{Basis, Effect, NodeNumber, Picker, Request, Settings, Update};
use fleet_core::view::ModelView;

const REQUESTS: u64 = 400_000;
const COPIES: usize = 6;
const SINGLE: Duration = Duration::from_millis(5);
const ROW: Duration = Duration::from_millis(1);
const MAX_BATCH: u32 = 16;
const INTERVAL: Duration = Duration::from_millis(100);

fn view() -> ModelView {
    ModelView {
        ready: true,
        lanes: 1,
        row_time: ROW,
        single_time: SINGLE,
        max_batch: MAX_BATCH,
        ..ModelView::default()
    }
}

/// What each node has: every model on some nodes, spread evenly.
fn updates(nodes: usize, models: usize) -> Vec<Update> {
    let mut updates = vec![Update { complete: true, ..Update::default() }; nodes];
    for model in 0..models {
        for copy in 0..COPIES.min(nodes) {
            let node = (model * 7 + copy * nodes / COPIES.min(nodes)) % nodes;
            let entry = (format!("m{model}"), view());
            if !updates[node].models.contains(&entry) {
                updates[node].models.push(entry);
            }
        }
    }
    updates
}

fn main() {
    let words: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let cases = if let [nodes, models] = words[..] {
        vec![(nodes, models)]
    } else {
        vec![(10, 15), (100, 150), (1_000, 1_500)]
    };
    for (nodes, models) in cases {
        measure(nodes, models);
    }
}

fn measure(nodes: usize, models: usize) {
    let mut picker = Picker::new(Settings::default()).unwrap();
    let numbers: Vec<NodeNumber> = (0..nodes).map(|node| picker.node(&format!("n{node}")).unwrap()).collect();
    let all = updates(nodes, models);
    let names: Vec<String> = (0..models).map(|model| format!("m{model}")).collect();
    for (number, update) in numbers.iter().zip(&all) {
        picker.seen(Duration::ZERO, *number, update).unwrap();
    }
    let per_second = nodes as f64 / ROW.as_secs_f64() * 0.8;
    let gap = Duration::from_secs_f64(1.0 / per_second);
    let mut ends: BinaryHeap<Reverse<(Duration, u64)>> = BinaryHeap::new();
    let mut tickets = BTreeMap::new();
    let (mut batches, mut rows, mut refused) = (0_u64, 0_u64, 0_u64);
    let (mut next_view, mut seed) = (INTERVAL, 0x9e37_79b9_7f4a_7c15_u64);
    let started = Instant::now();
    for key in 0..REQUESTS {
        let now = gap.saturating_mul(u32::try_from(key).unwrap());
        // Everything that is due before this request arrives.
        loop {
            let end = ends.peek().map(|Reverse((at, _))| *at);
            let wake = picker.next_wake();
            let Some(at) = end.into_iter().chain(wake).chain([next_view]).min().filter(|at| *at <= now)
            else {
                break;
            };
            if at == next_view {
                next_view += INTERVAL;
                for (number, update) in numbers.iter().zip(&all) {
                    picker.seen(at, *number, &Update { complete: false, ..update.clone() }).unwrap();
                }
            } else if end == Some(at) {
                let Reverse((_, key)) = ends.pop().unwrap();
                picker.ended(at, tickets.remove(&key).unwrap());
            } else {
                picker.tick(at);
            }
            take(&mut picker, at, &mut ends, (&mut batches, &mut rows, &mut refused));
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let model = usize::try_from(seed >> 33).unwrap() % models;
        let deadline = Some(now + Duration::from_millis(100));
        let request = Request { key, model: &names[model], rows: 1, deadline, class: 0, is_asked: false };
        if let Some(ticket) = picker.arrive(now, &request) {
            tickets.insert(key, ticket);
        }
        take(&mut picker, now, &mut ends, (&mut batches, &mut rows, &mut refused));
    }
    let took = started.elapsed();
    let rate = REQUESTS as f64 / took.as_secs_f64();
    println!(
        "{nodes:5} nodes {models:5} models: {rate:9.0} decisions/s, {:6.2} us each, {:.1} rows a batch, {:.2} % refused",
        took.as_secs_f64() * 1e6 / REQUESTS as f64,
        rows as f64 / batches.max(1) as f64,
        refused as f64 * 100.0 / REQUESTS as f64,
    );
}

fn take(
    picker: &mut Picker,
    now: Duration,
    ends: &mut BinaryHeap<Reverse<(Duration, u64)>>,
    (batches, rows, refused): (&mut u64, &mut u64, &mut u64),
) {
    let mut last = None;
    for effect in picker.take_effects() {
        match effect {
            Effect::Send { key, basis, .. } => {
                *rows += 1;
                let mut time = SINGLE;
                if let Basis::Batch { id, rows } = basis {
                    *batches += u64::from(last != Some(id));
                    last = Some(id);
                    time = ROW * rows.max(5);
                }
                ends.push(Reverse((now + time, key)));
            }
            Effect::Refuse { .. } => *refused += 1,
            Effect::Ask { .. } | Effect::AskEnded { .. } => {}
        }
    }
}
