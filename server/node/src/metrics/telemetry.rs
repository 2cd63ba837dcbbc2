//! What is sent over OTLP.

use ::telemetry::sampling::Cause;
use ::telemetry::{Dropped, SignalName, Statistics};

use super::names;

/// Shows the statistics of the exporter.
pub fn telemetry_sent(statistics: &Statistics) {
    for (name, signal) in
        [("traces", SignalName::Traces), ("metrics", SignalName::Metrics), ("logs", SignalName::Logs)]
    {
        let counts = statistics.signal(signal);
        metrics::counter!(names::TELEMETRY_EXPORTED.name, names::SIGNAL => name).absolute(counts.exported());
        for cause in Dropped::ALL {
            let word = match cause {
                Dropped::QueueFull => "queue_full",
                Dropped::Refused => "refused",
                Dropped::SendFailed => "send_failed",
            };
            metrics::counter!(names::TELEMETRY_DROPPED.name, names::SIGNAL => name, names::CAUSE => word)
                .absolute(counts.dropped_for(cause));
        }
    }
    for cause in Cause::ALL {
        let word = cause.name();
        metrics::counter!(names::TRACED.name, names::CAUSE => word).absolute(statistics.kept(cause));
        metrics::counter!(names::NOT_TRACED.name, names::CAUSE => word).absolute(statistics.limited(cause));
    }
}
