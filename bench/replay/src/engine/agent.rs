//! The agent's part (`agent::reads`): what it asks of the policies at each of the program's reads.

use super::*;

impl Player<'_> {
    pub(super) fn reads(&mut self, number: usize, file: u32, place: u64, length: u64) {
        if self.process.calm > 0 {
            self.process.calm -= 1;
            return;
        }
        let look = self.trace.costs.look;
        self.outcome.looked += look;
        let thread = &mut self.threads[number];
        thread.time += look;
        let now = thread.time;
        self.notes_company(number);
        self.end_of_stall(number);
        let foretold = self.compare(number);
        let thread = &mut self.threads[number];
        let is_cached_in_any_case = foretold.is_some_and(|entry| !entry.prefetched);
        let page = place / PAGE;
        let is_there = is_cached_in_any_case || self.cache.is_there(file, page, now);
        if !is_there {
            let left = (place + length).div_ceil(PAGE) - page;
            let ahead = thread.ahead.entry((false, file)).or_default();
            self.cache.read(ahead, file, page, left, now);
        }
        self.outcome.foretold += u64::from(foretold.is_some());
        let (sync, time) = (self.speculator.sync_cost, self.clock.at(now));
        thread.machines().read(foretold.is_some(), length, sync, || time);
        match foretold {
            Some(entry) if !entry.prefetched => {}
            _ if is_there => self.hits(number, foretold),
            _ => self.stalls(number, foretold, file, page),
        }
    }

    pub(super) fn notes_company(&mut self, number: usize) {
        let Some(lane) = self.threads[number].lane else { return };
        let process = &mut self.process;
        if process.latest_lane != lane {
            (process.latest_lane, process.company) = (lane, COMPANY);
        } else {
            process.company = process.company.saturating_sub(1);
        }
    }

    pub(super) fn has_company(&self) -> bool {
        self.process.company > 0
    }

    pub(super) fn end_of_stall(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.saw_a_stall = false;
        let began = std::mem::take(&mut thread.stall_began);
        if began == 0 {
            return;
        }
        let ns = self.clock.at(thread.time).saturating_sub(began);
        thread.saw_a_stall = true;
        thread.hold.stalled(ns);
        let is_whole = thread.stall_is_whole;
        thread.worth.waited(ns, is_whole, self.speculator.prefetched);
        self.waited(ns, is_whole);
    }

    pub(super) fn waited(&mut self, ns: u64, is_whole: bool) {
        let process = &mut self.process;
        process.stall_ns = process.stall_ns.saturating_add(ns);
        process.run_waited = process.run_waited.saturating_add(ns);
        if is_whole {
            process.whole_ns = process.whole_ns.saturating_add(ns);
        }
    }

    /// Entries that the log holds for a thread in its epoch.
    pub(super) fn written(&self, number: usize) -> u32 {
        let thread = &self.threads[number];
        let lane = thread.lane.and_then(|lane| self.speculator.lanes.get(lane));
        lane.filter(|lane| lane.synced == thread.epoch).map_or(0, |lane| lane.log.len() as u32)
    }

    pub(super) fn next(&self, number: usize) -> Option<Entry> {
        let thread = &self.threads[number];
        if thread.passed >= self.written(number) {
            return None;
        }
        self.speculator.lanes[thread.lane?].log.get(thread.passed as usize).copied()
    }

    /// What the log says of the thread's read, if it has foretold it.
    pub(super) fn compare(&mut self, number: usize) -> Option<Entry> {
        if !self.threads[number].track.is_on() {
            return None;
        }
        let entry = self.next(number);
        let next = match entry {
            Some(entry) if entry.right => Next::Foretold,
            Some(_) => Next::Different,
            None if self.has_stopped(number) => Next::Never,
            None => Next::NotYet,
        };
        self.follow(number, next);
        entry.filter(|_| next == Next::Foretold)
    }

    pub(super) fn has_stopped(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        let lane = thread.lane.and_then(|lane| self.speculator.lanes.get(lane));
        lane.is_none_or(|lane| lane.over == thread.epoch && self.written(number) <= thread.passed)
    }

    pub(super) fn follow(&mut self, number: usize, next: Next) {
        let thread = &mut self.threads[number];
        let (now, lane) = (thread.time, thread.lane);
        match thread.track.passes(next) {
            Passing::Pass => {
                thread.passed += 1;
                let passed = thread.passed;
                let Some(lane) = lane else { return };
                self.speculator.lanes[lane].passed = passed;
                if let Mode::Asleep { wake_at, .. } = self.speculator.mode
                    && self.speculator.lane == lane
                    && passed >= wake_at
                {
                    self.speculator.wakes(now);
                }
            }
            Passing::Off { cancel: true } => self.cancel(number),
            Passing::Off { cancel: false } => {}
        }
    }

    pub(super) fn cancel(&mut self, number: usize) {
        let thread = &self.threads[number];
        let Some(lane) = thread.lane else { return };
        self.speculator.lanes[lane].cancelled = thread.epoch;
        if matches!(self.speculator.mode, Mode::Asleep { .. }) {
            self.speculator.wakes(thread.time);
        }
    }

    pub(super) fn hits(&mut self, number: usize, foretold: Option<Entry>) {
        let thread = &mut self.threads[number];
        if foretold.is_some_and(|entry| entry.prefetched) {
            self.process.full += 1;
            self.process.attention.stall();
            thread.hold.saved();
            thread.worth.spared();
            thread.pieces.stall();
        }
        if thread.track.is_on()
            && thread.pieces.cost_more(thread.hold.expected_stall())
            && thread.track.leaves()
        {
            self.cancel(number);
        }
        let skip = self.process.attention.hit();
        let away = if skip == 0 { self.looks_away(number) } else { 0 };
        self.set_calm(skip.max(away));
    }

    pub(super) fn must_see(&self) -> bool {
        self.threads.iter().any(|thread| thread.phase != Phase::Over && thread.track.is_on())
    }

    pub(super) fn set_calm(&mut self, skip: u32) {
        self.process.calm = if self.must_see() { 0 } else { skip };
    }

    pub(super) fn looks_away(&mut self, number: usize) -> u32 {
        if !self.threads[number].saw_a_stall || self.must_see() {
            return 0;
        }
        let thread = &mut self.threads[number];
        thread.worth.look_away(thread.hold.expected_stall())
    }

    pub(super) fn stalls(&mut self, number: usize, foretold: Option<Entry>, file: u32, page: u64) {
        self.process.attention.stall();
        self.process.calm = 0;
        self.process.stalls += 1;
        self.process.partial += u64::from(foretold.is_some());
        let thread = &mut self.threads[number];
        thread.pieces.stall();
        thread.stall_began = self.clock.at(thread.time).max(1);
        thread.stall_is_whole = foretold.is_none();
        let has_lane = self.takes_lane(number);
        self.threads[number].worth.waits(self.speculator.prefetched);
        if has_lane && !self.is_patient() {
            let stall = Stall {
                foretold: foretold.is_some(),
                gap: self.threads[number].passed.saturating_sub(self.written(number)),
                waits_for_turn: self.waits_for_turn(number),
                has_company: self.has_company(),
                sync: self.speculator.sync_cost,
                may: true,
            };
            if let Restart::Post(wait) = self.threads[number].machines().at_stall(stall) {
                return self.post(number, wait, file, page);
            }
        }
        let away = self.looks_away(number);
        if away > 0 {
            self.set_calm(away);
            let thread = &mut self.threads[number];
            thread.stall_began = 0;
            let (expected, is_whole) = (thread.hold.expected_stall(), thread.stall_is_whole);
            self.waited(expected, is_whole);
        }
    }

    pub(super) fn takes_lane(&mut self, number: usize) -> bool {
        if self.threads[number].lane.is_none() && self.process.lanes.len() < LANES {
            let lane = self.process.lanes.len();
            self.process.lanes.push(number);
            self.threads[number].lane = Some(lane);
            self.speculator.lanes.push(Lane { thread: number, ..Lane::default() });
        }
        self.threads[number].lane.is_some()
    }

    pub(super) fn is_patient(&mut self) -> bool {
        let process = &self.process;
        let past = Past {
            stalls: process.stalls,
            patience: 0,
            spent: self.speculator.seen,
            waited: process.whole_ns,
            saved: process.saved(),
        };
        self.outcome.most_saved = self.outcome.most_saved.max(past.saved);
        past.is_patient() || !is_worth_a_start(process.run_waited, false)
    }

    /// Other threads have had their turns since this one has posted.
    pub(super) fn waits_for_turn(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        let lane = thread.lane.and_then(|lane| self.speculator.lanes.get(lane));
        self.has_company() && lane.is_some_and(|lane| lane.taken != thread.epoch)
    }

    pub(super) fn post(&mut self, number: usize, wait: Wait, file: u32, page: u64) {
        let renews = self.waits_for_turn(number);
        let thread = &mut self.threads[number];
        let Some(lane) = thread.lane.map(|lane| &mut self.speculator.lanes[lane]) else { return };
        self.process.epochs += 1;
        let before = std::mem::replace(&mut thread.epoch, self.process.epochs);
        if !renews {
            (lane.epoch_before, lane.passed_before) = (before, thread.passed);
        }
        thread.passed = 0;
        thread.track.posted();
        let is_served = lane.synced != 0;
        if is_served && !renews {
            thread.worth.posted(false);
        }
        if !renews {
            thread.futile.restarts(self.speculator.prefetched, is_served);
        }
        (lane.posted, lane.posted_at, lane.passed) = (thread.epoch, thread.at, 0);
        thread.time += self.trace.costs.restart;
        self.outcome.looked += self.trace.costs.restart;
        self.outcome.restarts += 1;
        let now = thread.time;
        self.follow(number, Next::NotYet);
        match self.speculator.mode {
            Mode::Absent => {
                self.speculator.mode = Mode::Starting;
                self.speculator.time = now;
                self.charge(self.trace.costs.start);
            }
            Mode::Idle | Mode::Asleep { .. } => self.speculator.wakes(now),
            _ => {}
        }
        let (settled, mut longest) = match wait {
            Wait::Not => return,
            Wait::Within(longest) => (false, longest),
            Wait::Invest(longest) => (true, longest),
        };
        if self.has_company() {
            let ready = self.cache.ready(file, page).unwrap_or(now);
            longest = longest.min(ready.saturating_sub(now));
        }
        let thread = &mut self.threads[number];
        thread.time = now.saturating_add(longest);
        thread.phase = Phase::Held { settled, since: now, invests: settled };
    }

    pub(super) fn was_held(&mut self, number: usize, since: u64, invests: bool) {
        let thread = &mut self.threads[number];
        let What::Read { file, place, .. } = thread.steps[thread.at].what else { return };
        let held = self.clock.at(thread.time).saturating_sub(self.clock.at(since));
        let ready = self.cache.ready(file, place / PAGE).unwrap_or(since);
        let beyond = thread.time.saturating_sub(ready.max(since));
        self.outcome.holds += 1;
        self.outcome.held += beyond;
        self.outcome.waited += thread.time - since - beyond;
        if invests {
            thread.hold.invested(held);
        } else if ready <= thread.time {
            thread.hold.outlasted(held);
        }
        self.begins_reading(number);
    }
}
