//! Salus: the memory inequality, and the order of the published results.

use colocation::salus::{Effect, Event, Job, MEMORY_MB, Order, Salus, draw, jobs, run};
use proptest::prelude::*;

use crate::data;

/// Some rows of the published list (SymbioticLab/Salus, commit 7b7f5e0, `tests/workloads.csv`).
const LIST: &str = "workload,seconds,peak_memory_mb,iterations
vgg11_25_1min,67.059,3709.6,565
vgg19_100_10min,618.245,12024.1,778
resnet50_50_5min,321.565,4008.2,1332
resnet152_75_10min,653.573,12725.7,764
googlenet_25_1min,73.123,756.1,1015
alexnet_100_1min,66.886,1396.5,1332
";

fn job(seconds: f64, iterations: u64, persistent_mb: f64, ephemeral_mb: f64) -> Job {
    Job { name: "job".to_owned(), arrives: 0.0, seconds, iterations, persistent_mb, ephemeral_mb }
}

#[test]
fn the_list_is_read() {
    let list = jobs(LIST).unwrap();
    assert_eq!((list.len(), list[2].iterations, list[2].seconds), (6, 1_332, 321.565));
    // Persistent memory that the paper gives.
    assert!((list[4].persistent_mb - 110.9).abs() < 1e-9 && (list[3].persistent_mb - 822.2).abs() < 1e-9);
    assert_eq!(jobs("a,b,c,d\nx,-1,2,3\n").unwrap_err(), "line 2: expected a time in seconds, got `-1`");
    assert!(jobs("a\n").is_err());
    assert!(Order::find("srpt").unwrap_err().starts_with("expected one of fifo, srtf, fair, pack, all"));
}

#[test]
fn the_shortest_job_takes_over_between_iterations() {
    // 10 iterations of 1 s, and 2 of 1 s that arrive after 3.5 s.
    let mut jobs = [job(10.0, 10, 1.0, 1.0), job(2.0, 2, 1.0, 1.0)];
    jobs[1].arrives = 3.5;
    let minutes = |order| run(&jobs, order, 100.0).unwrap().mean_min * 60.0;
    // The second one runs from 4 to 6 s, the first one ends at 12 s.
    assert!((minutes(Order::Srtf) - (12.0 + 2.5) / 2.0).abs() < 1e-6);
    assert!((minutes(Order::Fifo) - (10.0 + 8.5) / 2.0).abs() < 1e-6);
}

#[test]
fn a_job_that_never_fits_is_refused() {
    let problem = run(&[job(1.0, 1, 60.0, 50.0)], Order::Srtf, 100.0).unwrap_err();
    assert_eq!(problem, "job `job`: expected at most 100 MB of memory, got 110.0 MB");
}

fn order_of(list: &[Job], count: usize, cv: Option<f64>, seed: u64) -> f64 {
    let drawn = draw(list, count, cv, 0.0, seed);
    let mean = |order| run(&drawn, order, MEMORY_MB).unwrap().mean_min;
    mean(Order::Fifo) / mean(Order::Srtf)
}

#[test]
fn srtf_ends_jobs_earlier_than_fifo() {
    for seed in 203..208 {
        let ratio = order_of(&jobs(LIST).unwrap(), 60, None, seed);
        println!("seed {seed}: {ratio:.2}");
        assert!(ratio > 1.1, "seed {seed}: {ratio}");
    }
}

#[test]
fn srtf_ends_the_published_jobs_earlier_than_fifo() {
    let Some(folder) = data::folder() else { return };
    let list = jobs(&data::read(&folder.join("salus/workloads.csv"))).unwrap();
    for seed in 203..206 {
        let [uniform, heavy] = [None, Some(3.0)].map(|cv| order_of(&list, 100, cv, seed));
        println!("seed {seed}: {uniform:.2} {heavy:.2}");
        assert!(uniform > 1.2 && heavy > uniform, "seed {seed}: {uniform} {heavy}");
    }
}

fn any_jobs() -> impl Strategy<Value = Vec<Job>> {
    let one = (1.0_f64..20.0, 1_u64..10, 0.0_f64..300.0, 0.0_f64..700.0, 0.0_f64..30.0);
    let one = one.prop_map(|(seconds, iterations, persistent_mb, ephemeral_mb, arrives)| Job {
        arrives,
        ..job(seconds, iterations, persistent_mb, ephemeral_mb)
    });
    proptest::collection::vec(one, 1..30)
}

proptest! {
    #[test]
    fn memory_is_never_exceeded_and_every_job_ends(jobs in any_jobs()) {
        const CAPACITY_MB: f64 = 1_000.0;
        for (word, order, _) in Order::ALL {
            let ended = run(&jobs, *order, CAPACITY_MB).unwrap();
            prop_assert_eq!(ended.jobs, jobs.len(), "{}", word);
            prop_assert!(ended.memory_mb_max <= CAPACITY_MB + 1e-6, "{}: {} MB", word, ended.memory_mb_max);
        }
    }

    #[test]
    fn lanes_never_share_a_job(jobs in any_jobs(), choices in proptest::collection::vec(any::<usize>(), 0..200)) {
        let mut salus = Salus::new(Order::Pack, jobs.clone(), 1_000.0);
        let mut running: Vec<(usize, usize)> = Vec::new();
        let mut effects = Vec::new();
        let mut arriving = 0..jobs.len();
        for choice in choices {
            match (choice % 2, arriving.next(), running.is_empty()) {
                (0, Some(job), _) | (_, Some(job), true) => salus.handle(Event::Arrived(job), &mut effects),
                (_, _, false) => {
                    let (lane, _) = running.swap_remove(choice % running.len());
                    salus.handle(Event::IterationEnded(lane), &mut effects);
                }
                (_, None, true) => {}
            }
            for effect in effects.drain(..) {
                if let Effect::Run { lane, job } = effect {
                    prop_assert!(running.iter().all(|(other_lane, other)| *other_lane != lane && *other != job));
                    running.push((lane, job));
                }
            }
            prop_assert!(salus.lanes().used_mb() <= 1_000.0 + 1e-6);
        }
    }
}
