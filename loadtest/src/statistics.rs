//! A server's own counts, from the statistics extension.

use std::collections::BTreeMap;

use oip::proto;
use serde::Deserialize;

use crate::report::{BatchSize, ServerTimes};

/// A number of operations, and their total time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Sum {
    #[serde(default)]
    count: u64,
    #[serde(default)]
    ns: u64,
}

impl Sum {
    fn since(self, before: Self) -> Self {
        Self { count: self.count.saturating_sub(before.count), ns: self.ns.saturating_sub(before.ns) }
    }

    fn plus(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), ns: self.ns.saturating_add(other.ns) }
    }

    fn mean_ms(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.ns as f64 / self.count as f64 / 1e6 }
    }
}

impl From<Option<proto::StatisticDuration>> for Sum {
    fn from(told: Option<proto::StatisticDuration>) -> Self {
        told.map_or_else(Self::default, |told| Self { count: told.count, ns: told.ns })
    }
}

/// Counts by phase of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Parts {
    success: Sum,
    queue: Sum,
    compute_input: Sum,
    compute_infer: Sum,
    compute_output: Sum,
}

impl Parts {
    fn each(self, other: Self, with: impl Fn(Sum, Sum) -> Sum) -> Self {
        Self {
            success: with(self.success, other.success),
            queue: with(self.queue, other.queue),
            compute_input: with(self.compute_input, other.compute_input),
            compute_infer: with(self.compute_infer, other.compute_infer),
            compute_output: with(self.compute_output, other.compute_output),
        }
    }
}

/// Counts of one model since it was loaded, all versions together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    requests: Parts,
    /// By rows.
    batches: BTreeMap<u64, Parts>,
}

/// The counts of a REST response.
#[derive(Deserialize)]
pub(crate) struct Body {
    #[serde(default)]
    model_stats: Vec<ModelBody>,
}

#[derive(Deserialize)]
struct ModelBody {
    #[serde(default)]
    inference_stats: Parts,
    #[serde(default)]
    batch_stats: Vec<BatchBody>,
}

#[derive(Deserialize)]
struct BatchBody {
    batch_size: u64,
    #[serde(flatten)]
    parts: Parts,
}

impl Statistics {
    fn add(&mut self, requests: Parts, batches: impl Iterator<Item = (u64, Parts)>) {
        self.requests = self.requests.each(requests, Sum::plus);
        for (rows, parts) in batches {
            let entry = self.batches.entry(rows).or_default();
            *entry = entry.each(parts, Sum::plus);
        }
    }

    pub fn from_rest(body: &Body) -> Self {
        let mut statistics = Self::default();
        for model in &body.model_stats {
            let batches = model.batch_stats.iter().map(|batch| (batch.batch_size, batch.parts));
            statistics.add(model.inference_stats, batches);
        }
        statistics
    }

    pub fn from_grpc(told: &proto::ModelStatisticsResponse) -> Self {
        let mut statistics = Self::default();
        for model in &told.model_stats {
            let requests = model.inference_stats.as_ref().map_or_else(Parts::default, |stats| Parts {
                success: stats.success.into(),
                queue: stats.queue.into(),
                compute_input: stats.compute_input.into(),
                compute_infer: stats.compute_infer.into(),
                compute_output: stats.compute_output.into(),
            });
            let batches = model.batch_stats.iter().map(|batch| {
                let parts = Parts {
                    compute_input: batch.compute_input.into(),
                    compute_infer: batch.compute_infer.into(),
                    compute_output: batch.compute_output.into(),
                    ..Parts::default()
                };
                (batch.batch_size, parts)
            });
            statistics.add(requests, batches);
        }
        statistics
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let batches = self.batches.iter().map(|(&rows, &after)| {
            let before = before.batches.get(&rows).copied().unwrap_or_default();
            (rows, after.each(before, Sum::since))
        });
        Self { requests: self.requests.each(before.requests, Sum::since), batches: batches.collect() }
    }

    /// Batches by size.
    pub fn batch_sizes(&self) -> Vec<BatchSize> {
        let ran = self.batches.iter().filter(|(_, parts)| parts.compute_infer.count > 0);
        let of = |(&rows, parts): (&u64, &Parts)| BatchSize {
            rows,
            batches: parts.compute_infer.count,
            compute_ms: parts.compute_infer.mean_ms(),
            overhead_ms: parts.compute_input.mean_ms() + parts.compute_output.mean_ms(),
        };
        ran.map(of).collect()
    }

    /// Where the time of requests was spent; none if none was answered.
    pub fn times(&self) -> Option<ServerTimes> {
        let parts = self.requests;
        (parts.success.count > 0).then(|| ServerTimes {
            requests: parts.success.count,
            total_ms: parts.success.mean_ms(),
            queue_ms: parts.queue.mean_ms(),
            input_ms: parts.compute_input.mean_ms(),
            compute_ms: parts.compute_infer.mean_ms(),
            output_ms: parts.compute_output.mean_ms(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = r#"{"model_stats": [{"name": "m", "version": "1", "inference_count": 6,
        "inference_stats": {"success": {"count": 4, "ns": 8000000}, "queue": {"count": 4, "ns": 2000000},
            "compute_infer": {"count": 4, "ns": 4000000}, "new_one": {"count": 1, "ns": 1}},
        "batch_stats": [
            {"batch_size": 1, "compute_input": {"count": 2, "ns": 200000}, "compute_infer": {"count": 2, "ns": 2000000},
             "compute_output": {"count": 2, "ns": 100000}},
            {"batch_size": 4, "compute_infer": {"count": 1, "ns": 3000000}}]}]}"#;

    fn rest(text: &str) -> Statistics {
        Statistics::from_rest(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_happened_in_between_is_told() {
        let (before, after) = (
            rest(REST),
            rest(&REST.replace("\"count\": 2, \"ns\": 2000000", "\"count\": 4, \"ns\": 8000000")),
        );
        let since = after.since(&before);
        assert_eq!(since.times(), None);
        let one = BatchSize { rows: 1, batches: 2, compute_ms: 3.0, overhead_ms: 0.0 };
        assert_eq!(since.batch_sizes(), [one]);
        let sizes = before.batch_sizes();
        assert_eq!(sizes.iter().map(|size| (size.rows, size.batches)).collect::<Vec<_>>(), [(1, 2), (4, 1)]);
        assert!((sizes[0].overhead_ms - 0.15).abs() < 1e-12);
        let times = before.times().unwrap();
        assert_eq!((times.requests, times.total_ms, times.queue_ms, times.output_ms), (4, 2.0, 0.5, 0.0));
    }

    #[test]
    fn both_forms_say_the_same() {
        let some = |count, ns| Some(proto::StatisticDuration { count, ns });
        let model = proto::ModelStatistics {
            inference_stats: Some(proto::InferStatistics {
                success: some(4, 8_000_000),
                queue: some(4, 2_000_000),
                compute_infer: some(4, 4_000_000),
                ..Default::default()
            }),
            batch_stats: vec![
                proto::InferBatchStatistics {
                    batch_size: 1,
                    compute_input: some(2, 200_000),
                    compute_infer: some(2, 2_000_000),
                    compute_output: some(2, 100_000),
                },
                proto::InferBatchStatistics {
                    batch_size: 4,
                    compute_infer: some(1, 3_000_000),
                    ..Default::default()
                },
            ],
            ..Default::default()
        };
        let told = proto::ModelStatisticsResponse { model_stats: vec![model] };
        assert_eq!(Statistics::from_grpc(&told), rest(REST));
        assert_eq!(rest("{}"), Statistics::default());
    }
}
