//! The state machine of one roll-out.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evidence::{Comparison, Excess};
use crate::figures::Figures;
use crate::settings::Settings;
use crate::traffic_share::TrafficShare;
use crate::verdict::{Cause, Measure, Verdict};
use crate::{Arm, Ending, FALSE_ALARM};

/// Requests that run on both versions at once, at most. More would take lanes from requests with deadlines.
const MIRRORS: usize = 4;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request ended.
    Ended {
        /// Which version it got.
        arm: Arm,
        /// Whose it was.
        tenant: u16,
        /// How it ended.
        ending: Ending,
    },
    /// A request that the stable version answered was run on the canary too.
    Compared {
        /// Whose it was.
        tenant: u16,
        /// Whether the outputs agree.
        agrees: bool,
    },
    /// A request that was to run on both versions did not, or its outputs say nothing.
    NotCompared,
    /// A request on the canary failed with two lanes. Lanes serve other models too, so one is enough.
    Crashed,
    /// Time has passed.
    Tick,
    /// An operator promotes the canary.
    Promote,
    /// An operator rolls the canary back.
    RollBack,
}

/// Where a roll-out stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Both versions get requests.
    Baking,
    /// The new version gets all requests.
    Promoted,
    /// The old version gets all requests.
    RolledBack,
}

/// A roll-out: a stable version and a canary, until one of them gets all requests.
#[derive(Clone, Debug)]
pub struct Rollout {
    settings: Settings,
    began: Duration,
    served: TrafficShare,
    mirrored: TrafficShare,
    /// Requests that run on both versions.
    mirrors: usize,
    all: Evidence,
    /// Evidence by tenant, if there are several.
    tenants: BTreeMap<u16, Evidence>,
    figures: Figures,
    verdict: Option<Verdict>,
}

/// The evidence of some requests.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    failures: Comparison,
    attainment: Comparison,
    agreement: Excess,
}

impl Evidence {
    fn new(settings: &Settings) -> Self {
        let (failures, attainment) = Default::default();
        Self { failures, attainment, agreement: Excess::over(1.0 - settings.agreement) }
    }

    fn ended(&mut self, arm: Arm, ending: Ending) {
        let (failed, missed) = (ending == Ending::Failed, ending != Ending::InTime);
        match arm {
            Arm::Stable => {
                self.failures.stable(failed);
                self.attainment.stable(missed);
            }
            Arm::Canary => {
                self.failures.canary(failed);
                self.attainment.canary(missed);
            }
        }
    }

    /// What the canary is worse in, if one evidence exceeds a limit.
    fn worse(&self, log_limit: f64) -> Option<Measure> {
        let logs = [
            (Measure::Failures, self.failures.log()),
            (Measure::Attainment, self.attainment.log()),
            (Measure::Agreement, self.agreement.log()),
        ];
        logs.into_iter().find(|(_, log)| *log > log_limit).map(|(measure, _)| measure)
    }
}

/// Measures by which the versions are compared in each group of requests.
const MEASURES: f64 = 3.0;

impl Rollout {
    /// A roll-out that begins now. Times count from any moment that stays the same.
    pub fn new(settings: Settings, now: Duration) -> Self {
        Self {
            settings,
            began: now,
            served: TrafficShare::default(),
            mirrored: TrafficShare::default(),
            mirrors: 0,
            all: Evidence::new(&settings),
            tenants: BTreeMap::new(),
            figures: Figures::default(),
            verdict: None,
        }
    }

    /// The version that the next request of a tenant gets.
    pub fn route(&mut self, tenant: u16) -> Arm {
        match self.verdict {
            Some(Verdict::Promoted { .. }) => Arm::Canary,
            Some(Verdict::RolledBack { .. }) => Arm::Stable,
            None if self.served.take(tenant, self.settings.canary) => Arm::Canary,
            None => Arm::Stable,
        }
    }

    /// Whether the next request of a tenant that gets the stable version is run on the canary too: the same share as the canary
    /// gets, so that its load at most doubles, and few at once. If it is, [`Event::Compared`] or [`Event::NotCompared`] must follow.
    pub fn mirrors(&mut self, tenant: u16) -> bool {
        let is_due = self.settings.compare
            && self.verdict.is_none()
            && self.mirrored.take(tenant, self.settings.canary);
        let mirrors = is_due && self.mirrors < MIRRORS;
        self.mirrors += usize::from(mirrors);
        mirrors
    }

    /// Takes up an event. Returns the verdict if this event led to it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Option<Verdict> {
        if self.verdict.is_some() {
            return None;
        }
        self.figures.elapsed = now.saturating_sub(self.began);
        self.verdict = match event {
            Event::Promote => Some(Verdict::Promoted { cause: Cause::Operator }),
            Event::RollBack => Some(Verdict::RolledBack { cause: Cause::Operator }),
            Event::Crashed => Some(Verdict::RolledBack { cause: Cause::Crashed }),
            Event::Tick => self.evaluate(None),
            Event::Ended { arm, tenant, ending } => {
                self.figures.of_mut(arm).count(ending);
                self.each(tenant, |evidence| evidence.ended(arm, ending));
                self.evaluate(Some(tenant))
            }
            Event::NotCompared => {
                self.mirrors = self.mirrors.saturating_sub(1);
                None
            }
            Event::Compared { tenant, agrees } => {
                self.mirrors = self.mirrors.saturating_sub(1);
                self.figures.compared += 1;
                self.figures.disagreed += u64::from(!agrees);
                self.each(tenant, |evidence| evidence.agreement.add(!agrees));
                self.evaluate(Some(tenant))
            }
        };
        self.verdict
    }

    /// Time of the next [`Event::Tick`] that may lead to a verdict. `None`: only other events may.
    pub fn next_tick(&self) -> Option<Duration> {
        (self.verdict.is_none() && self.has_samples()).then(|| self.began.saturating_add(self.settings.bake))
    }

    /// What is known so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.verdict {
            None => State::Baking,
            Some(Verdict::Promoted { .. }) => State::Promoted,
            Some(Verdict::RolledBack { .. }) => State::RolledBack,
        }
    }

    /// How it ended. `None`: it has not.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Goes on with other settings. What is known stays known.
    pub fn change(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Requests or comparisons that a promotion lacks.
    pub fn missing_samples(&self) -> u64 {
        let missing = |count: u64| self.settings.samples.saturating_sub(count);
        let compared = if self.settings.compare { missing(self.figures.compared) } else { 0 };
        missing(self.figures.canary.requests).max(compared)
    }

    fn has_samples(&self) -> bool {
        self.missing_samples() == 0
    }

    fn each(&mut self, tenant: u16, mut add: impl FnMut(&mut Evidence)) {
        add(&mut self.all);
        if self.settings.tenants > 1 {
            add(self.tenants.entry(tenant).or_insert_with(|| Evidence::new(&self.settings)));
        }
    }

    /// Looks at all requests, and at those of the tenant whose evidence changed. Half of the false alarms that are allowed are for all
    /// requests together, the other half for the tenants.
    fn evaluate(&self, tenant: Option<u16>) -> Option<Verdict> {
        let limit = |groups: f64| (2.0 * MEASURES * groups / FALSE_ALARM).ln();
        let of_tenant = || {
            let tenant = tenant?;
            let evidence = self.tenants.get(&tenant)?;
            Some((evidence.worse(limit(f64::from(self.settings.tenants)))?, Some(tenant)))
        };
        let of_all = self.all.worse(limit(1.0)).map(|measure| (measure, None));
        if let Some((measure, tenant)) = of_all.or_else(of_tenant) {
            return Some(Verdict::RolledBack { cause: Cause::Worse { measure, tenant } });
        }
        let is_baked = self.figures.elapsed >= self.settings.bake && self.has_samples();
        is_baked.then_some(Verdict::Promoted { cause: Cause::Baked })
    }
}

#[cfg(test)]
mod tests;
