//! Renders a run, or a comparison of policies, as one HTML page. The page says what was simulated, which policy was
//! best, and shows plots. It has no scripts and loads no other file, so it can be sent by mail.

mod explanation;
mod tables;
mod verdict;
mod views;

use charts::{Note, document, notes};
use workload::Workload;

use crate::estimate::Estimate;
use crate::report::Report;

/// The contents of a page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// What was simulated.
    pub workload: &'a Workload,
    /// The command that reproduces this page.
    pub command: &'a str,
    /// Version of the program.
    pub version: &'a str,
    /// Upper bound on the goodput of any policy, mean over the seeds, and a description of its origin.
    pub bound: Option<(f64, String)>,
    /// The policies, best first.
    pub contenders: Vec<Contender<'a>>,
    /// Notes that the reader needs to interpret the figures.
    pub notes: Vec<Note>,
}

/// One policy of a page.
#[derive(Clone, Debug)]
pub struct Contender<'a> {
    /// Its name, with its options.
    pub name: String,
    /// Index of its colour. A policy has the same colour on all pages.
    pub colour: usize,
    /// The run that plots and distributions show.
    pub report: &'a Report,
    /// Requests offered a second, mean over the seeds.
    pub offered: f64,
    /// Good answers a second.
    pub goodput: Estimate,
    /// Good by offered, 0 to 1.
    pub attainment: Estimate,
    /// Offered rate and attainment (0 to 1), ascending by rate. Empty if it was not requested.
    pub sweep: Vec<(f64, f64)>,
    /// Highest rate with an attainment of 99 %, if it was requested.
    pub capacity: Option<f64>,
}

/// Attainment from which a policy meets its objectives.
pub const KEPT: f64 = 0.99;

impl Contender<'_> {
    /// Whether it meets its objectives.
    fn keeps(&self) -> bool {
        self.attainment.mean >= KEPT
    }
}

impl Page<'_> {
    /// Renders the whole file. The same page gives the same bytes.
    pub fn html(&self) -> String {
        let mut body = explanation::opening(self);
        body.push_str(&notes(&self.notes));
        body.push_str(&explanation::setting(self));
        body.push_str(&tables::results(self));
        body.push_str(&views::all(self));
        body.push_str(&views::gpulets(self));
        body.push_str(&views::lanes(self));
        body.push_str(&tables::models(self));
        body.push_str(&tables::tenants(self));
        body.push_str(&explanation::closing(self));
        document(&format!("{}: {}", self.workload.name, self.subject()), &body)
    }

    fn subject(&self) -> String {
        match self.contenders.as_slice() {
            [only] => format!("policy {}", only.name),
            all => format!("{} policies compared", all.len()),
        }
    }
}

#[cfg(test)]
mod tests;
