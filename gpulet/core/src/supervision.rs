//! Restarts fault domains that died, with a growing wait and a limit.
//!
//! There is one state machine for each fault domain: a worker process with everything that runs in it. A domain that
//! died has no capacity until it is up again. It is restarted after a wait that doubles with every death and every
//! failed restart, and is short again after it was up for a while. A domain that dies too often is disabled: whatever
//! killed it would kill it again, with its batches, so an operator must enable it.
//!
//! Deaths count towards being disabled. Failed restarts do not, because they lose no requests: a device that is away
//! for an hour is tried every half minute and comes back by itself.
//!
//! [`Supervision`] decides and the shell carries out: it tells what happened ([`Event`]) and is told what to do
//! ([`Effect`]). There is no clock here; times are microseconds on whatever clock the caller has.

mod message;
mod options;

use std::collections::VecDeque;

pub use self::message::{Effect, Event, Incarnation, State, View};
pub use self::options::{OptionsError, SupervisionOptions};
use crate::time::Micros;

/// Largest number of characters that are kept of a reason.
const REASON_CHARS_MAX: usize = 600;

/// The state machine of a fault domain. It begins with a domain that is up.
#[derive(Clone, Debug, PartialEq)]
pub struct Supervision {
    options: SupervisionOptions,
    now: Micros,
    state: State,
    /// The last incarnation that was requested.
    incarnation: Incarnation,
    /// What the next restart waits for.
    backoff_us: Micros,
    /// Times of its deaths, oldest first; at most as many as disable it.
    deaths: VecDeque<Micros>,
    /// Why it died, or could not be restarted, the last time.
    reason: Option<String>,
}

impl Supervision {
    /// A domain that is up for the first time.
    ///
    /// # Errors
    /// [`OptionsError`] where an option is out of range.
    pub fn new(options: SupervisionOptions) -> Result<Self, OptionsError> {
        options.validate()?;
        Ok(Self {
            options,
            now: Micros::ZERO,
            state: State::Up { since_us: Micros::ZERO },
            incarnation: Incarnation::FIRST,
            backoff_us: options.backoff_us,
            deaths: VecDeque::new(),
            reason: None,
        })
    }

    /// Processes an event and appends its effects, in order. Events of an earlier incarnation change nothing. Time
    /// never runs backwards: an earlier `now` counts as the latest one.
    pub fn handle(&mut self, now: Micros, event: Event, effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        match event {
            Event::Died { incarnation, reason } => self.died(incarnation, bounded(reason), effects),
            Event::Restarted { incarnation } => {
                if self.is_awaited(incarnation) {
                    self.state = State::Up { since_us: self.now };
                    effects.push(Effect::Up { incarnation });
                }
            }
            Event::RestartFailed { incarnation, reason } => {
                if self.is_awaited(incarnation) {
                    self.reason = Some(bounded(reason));
                    self.wait();
                }
            }
            Event::Enable => self.enable(effects),
            Event::Tick => {}
        }
        if let State::Waiting { until_us } = self.state
            && until_us <= self.now
        {
            self.restart(effects);
        }
    }

    /// When [`Event::Tick`] is due if nothing else happens before; none while only an event can change anything.
    pub fn next_wake(&self) -> Option<Micros> {
        match self.state {
            State::Waiting { until_us } => Some(until_us),
            State::Up { .. } | State::Restarting | State::Disabled => None,
        }
    }

    /// Whether the domain accepts work. If not, its capacity is zero.
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// The last incarnation that was requested, or the first.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The current state, for reports.
    pub fn view(&self) -> View {
        View {
            state: self.state,
            incarnation: self.incarnation,
            deaths: self.recent_deaths().count(),
            reason: self.reason.clone(),
        }
    }

    fn is_awaited(&self, incarnation: Incarnation) -> bool {
        self.state == State::Restarting && incarnation == self.incarnation
    }

    fn recent_deaths(&self) -> impl Iterator<Item = Micros> {
        let (now, window_us) = (self.now, self.options.deaths_within_us);
        self.deaths.iter().copied().filter(move |died_us| now.since(*died_us) < window_us)
    }

    /// A domain can die before its restart is reported, because the events come from different threads.
    fn died(&mut self, incarnation: Incarnation, reason: String, effects: &mut Vec<Effect>) {
        let lived_us = match self.state {
            State::Up { since_us } => self.now.since(since_us),
            State::Restarting => Micros::ZERO,
            // It is known to be dead.
            State::Waiting { .. } | State::Disabled => return,
        };
        if incarnation != self.incarnation {
            return;
        }
        if lived_us >= self.options.healthy_us {
            self.backoff_us = self.options.backoff_us;
        }
        self.deaths.push_back(self.now);
        while self.deaths.len() > usize::from(self.options.deaths_max) {
            self.deaths.pop_front();
        }
        self.reason = Some(reason.clone());
        effects.push(Effect::Down { incarnation, reason });
        if self.recent_deaths().count() >= usize::from(self.options.deaths_max) {
            self.state = State::Disabled;
            let (deaths, minutes) =
                (self.options.deaths_max, self.options.deaths_within_us.as_secs_f64() / 60.0);
            let reason =
                format!("died {deaths} times within {minutes:.1} minutes: expected an operator to enable it");
            effects.push(Effect::Disabled { reason });
        } else {
            self.wait();
        }
    }

    fn wait(&mut self) {
        self.state = State::Waiting { until_us: self.now.after(self.backoff_us) };
        self.backoff_us = self.backoff_us.after(self.backoff_us).min(self.options.backoff_max_us);
    }

    fn restart(&mut self, effects: &mut Vec<Effect>) {
        self.incarnation = self.incarnation.next();
        self.state = State::Restarting;
        effects.push(Effect::Restart { incarnation: self.incarnation });
    }

    fn enable(&mut self, effects: &mut Vec<Effect>) {
        if self.state == State::Disabled {
            self.deaths.clear();
            self.backoff_us = self.options.backoff_us;
            self.restart(effects);
        }
    }
}

fn bounded(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(REASON_CHARS_MAX) {
        reason.truncate(end);
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    struct Scenario {
        supervision: Supervision,
        now: Micros,
    }

    impl Scenario {
        fn new() -> Self {
            let supervision = Supervision::new(SupervisionOptions::default()).unwrap();
            Self { supervision, now: Micros::ZERO }
        }

        fn after(&mut self, passed_us: u64, event: Event) -> Vec<Effect> {
            self.now = self.now.after(Micros(passed_us));
            let mut effects = Vec::new();
            self.supervision.handle(self.now, event, &mut effects);
            effects
        }

        fn dies_after(&mut self, passed_us: u64) -> Vec<Effect> {
            let incarnation = self.supervision.incarnation();
            self.after(passed_us, Event::Died { incarnation, reason: "killed by SIGKILL".to_owned() })
        }

        /// Waits for the restart that is due. Returns the wait in microseconds.
        fn waits(&mut self) -> u64 {
            let due = self.supervision.next_wake().unwrap();
            let wait = due.since(self.now).0;
            assert_eq!(self.after(wait - 1, Event::Tick), [], "not before its time");
            let effects = self.after(1, Event::Tick);
            assert_eq!(effects, [Effect::Restart { incarnation: self.supervision.incarnation() }]);
            assert!(!self.supervision.is_up());
            wait
        }

        fn restarts(&mut self) {
            let incarnation = self.supervision.incarnation();
            let up = self.after(1000, Event::Restarted { incarnation });
            assert_eq!(up, [Effect::Up { incarnation }]);
            assert!(self.supervision.is_up());
        }

        fn fails(&mut self) {
            let incarnation = self.supervision.incarnation();
            let reason = "device is away".to_owned();
            assert_eq!(self.after(1000, Event::RestartFailed { incarnation, reason }), []);
            assert!(!self.supervision.is_up());
        }
    }

    #[test]
    fn a_domain_that_died_is_restarted_after_a_wait_and_has_no_capacity_before() {
        let mut domain = Scenario::new();
        let effects = domain.dies_after(5 * SECOND);
        assert!(matches!(&effects[..], [Effect::Down { reason, .. }] if reason == "killed by SIGKILL"));
        assert!(!domain.supervision.is_up());
        assert_eq!(domain.waits(), 100_000);
        domain.restarts();
        assert_eq!(domain.supervision.next_wake(), None);
    }

    #[test]
    fn waits_double_to_the_longest_and_are_short_again_after_a_healthy_minute() {
        let mut domain = Scenario::new();
        domain.dies_after(SECOND);
        let mut waits = Vec::new();
        for _ in 0..11 {
            waits.push(domain.waits() / 1000);
            domain.fails();
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(domain.waits(), 30 * SECOND);
        domain.restarts();
        domain.dies_after(59 * SECOND);
        assert_eq!(domain.waits(), 30 * SECOND, "a minute was not over");
        domain.restarts();
        domain.now = domain.now.after(Micros::from_secs(600));
        domain.dies_after(0);
        assert_eq!(domain.waits(), 100_000);
    }

    #[test]
    fn the_third_death_in_ten_minutes_disables_until_an_operator_enables() {
        let mut domain = Scenario::new();
        for _ in 0..2 {
            domain.dies_after(100 * SECOND);
            domain.waits();
            domain.restarts();
        }
        let effects = domain.dies_after(100 * SECOND);
        assert!(matches!(&effects[..], [Effect::Down { .. }, Effect::Disabled { reason }]
            if reason.starts_with("died 3 times within 10.0 minutes")));
        assert_eq!(domain.supervision.next_wake(), None);
        assert_eq!(domain.after(9000 * SECOND, Event::Tick), []);
        let effects = domain.after(0, Event::Enable);
        assert_eq!(effects, [Effect::Restart { incarnation: domain.supervision.incarnation() }]);
        domain.restarts();
        assert!(matches!(domain.dies_after(SECOND)[..], [Effect::Down { .. }]), "old deaths are forgiven");
        assert_eq!(domain.waits(), 100_000);
    }

    #[test]
    fn deaths_that_lie_far_apart_disable_nothing() {
        let mut domain = Scenario::new();
        for _ in 0..9 {
            assert!(matches!(domain.dies_after(301 * SECOND)[..], [Effect::Down { .. }]));
            domain.waits();
            domain.restarts();
        }
        assert_eq!(domain.supervision.view().deaths, 2);
    }

    #[test]
    fn a_death_that_is_reported_before_the_restart_counts() {
        let mut domain = Scenario::new();
        domain.dies_after(SECOND);
        domain.waits();
        let incarnation = domain.supervision.incarnation();
        assert!(matches!(domain.dies_after(1000)[..], [Effect::Down { .. }]));
        assert_eq!(domain.after(1, Event::Restarted { incarnation }), []);
        assert!(!domain.supervision.is_up());
        assert_eq!(domain.waits(), 200_000 - 1);
    }

    #[test]
    fn events_of_an_earlier_incarnation_change_nothing() {
        let mut domain = Scenario::new();
        let first = domain.supervision.incarnation();
        domain.dies_after(SECOND);
        assert_eq!(domain.after(0, Event::Died { incarnation: first, reason: "again".to_owned() }), []);
        domain.waits();
        domain.restarts();
        for event in [
            Event::Died { incarnation: first, reason: "late".to_owned() },
            Event::Restarted { incarnation: first },
            Event::RestartFailed { incarnation: first, reason: "late".to_owned() },
            Event::Enable,
        ] {
            assert_eq!(domain.after(0, event), []);
            assert!(domain.supervision.is_up());
        }
        assert_eq!(domain.supervision.view().reason.as_deref(), Some("killed by SIGKILL"));
    }
}
