//! The speculator's part (`speculator::run`): whom it serves, how far it runs ahead, and when it ends.

use super::*;

impl Player<'_> {
    /// It computes for `ns`, from its time on.
    pub(super) fn charge(&mut self, ns: u64) {
        let from = self.speculator.time;
        let wants = |thread: &&mut Thread| thread.phase == Phase::Computing && thread.time > from;
        let computing = self.threads.iter_mut().filter(wants).count() as u64;
        let is_crowded = computing >= u64::from(self.trace.processors);
        if is_crowded {
            let each = ns / computing.max(1);
            self.threads.iter_mut().filter(wants).for_each(|thread| thread.time += each);
        }
        self.speculator.spent += ns;
        let present = self.speculator.spent - self.speculator.begun_at;
        self.speculator.dearest = self.speculator.dearest.max(present);
        self.speculator.time = from.saturating_add(if is_crowded { ns.saturating_mul(SHARE) } else { ns });
    }

    pub(super) fn speculate(&mut self) {
        match self.speculator.mode {
            Mode::Absent => self.speculator.time = NEVER,
            Mode::Starting | Mode::Idle => self.serves(),
            Mode::Syncing => self.synced(),
            Mode::Running(left) => {
                if !self.is_over() {
                    self.goes_on(left);
                }
            }
            Mode::Arrived => {
                if !self.is_over() {
                    self.operates();
                }
            }
            Mode::Asleep { wake_at, passed } => self.wakes_up(wake_at, passed),
        }
    }

    pub(super) fn serves(&mut self) {
        self.speculator.mode = Mode::Idle;
        let Some(number) = self.speculator.next_lane() else {
            // It tells what it has taken.
            self.speculator.seen = self.speculator.spent;
            self.speculator.time = NEVER;
            return;
        };
        self.speculator.settle();
        let speculator = &mut self.speculator;
        let lane = &mut speculator.lanes[number];
        lane.taken = lane.posted;
        if lane.epoch_before == lane.epoch {
            settle(lane, lane.passed_before, &mut speculator.ledger, &mut speculator.depth);
        }
        (lane.served, lane.epoch, lane.settled) = (lane.posted, lane.posted, 0);
        lane.log.clear();
        (speculator.lane, speculator.at) = (number, lane.posted_at);
        (speculator.knows, speculator.strays) = (true, 0);
        speculator.begun += 1;
        if speculator.begun > 1 {
            // The first is paid for together with the start.
            speculator.begun_at = speculator.spent;
        }
        let threads = speculator.lanes.iter().filter(|lane| lane.posted != 0).count().max(1) as u32;
        speculator.ledger.age(&mut speculator.depth, speculator.begun, threads);
        speculator.pages_next = speculator.ledger.position();
        speculator.mode = Mode::Syncing;
        self.charge(self.trace.costs.sync);
    }

    pub(super) fn synced(&mut self) {
        let speculator = &mut self.speculator;
        let (now, number) = (speculator.time, speculator.lane);
        speculator.lanes[number].synced = speculator.lanes[number].epoch;
        speculator.sync_cost = self.trace.costs.sync.max(1);
        speculator.seen = speculator.spent;
        (speculator.turn_began, speculator.ticks) = (now, 0);
        speculator.mode = Mode::Running(None);
        self.lets_go(false);
    }

    /// Lets go of a thread that is held until speculation is in step, or has settled.
    pub(super) fn lets_go(&mut self, settled: bool) {
        let (now, lane) = (self.speculator.time, &self.speculator.lanes[self.speculator.lane]);
        let thread = &mut self.threads[lane.thread];
        if matches!(thread.phase, Phase::Held { settled: until, .. } if until == settled)
            && thread.epoch == lane.epoch
        {
            thread.time = thread.time.min(now + WAKE);
        }
    }

    pub(super) fn ends(&mut self) {
        self.lets_go(true);
        self.speculator.settle();
        let disk = self.disk();
        let speculator = &mut self.speculator;
        speculator.depth.grow(disk);
        let lane = &mut speculator.lanes[speculator.lane];
        lane.over = lane.epoch;
        speculator.mode = Mode::Idle;
    }

    /// Whether the present speculation has become pointless, or its turn is over; ends it then.
    pub(super) fn is_over(&mut self) -> bool {
        let speculator = &self.speculator;
        let lane = &speculator.lanes[speculator.lane];
        let pointless = lane.posted != lane.epoch || lane.cancelled == lane.epoch;
        let over = pointless || self.turn_is_over();
        if over {
            self.ends();
        }
        over
    }

    pub(super) fn turn_is_over(&self) -> bool {
        let speculator = &self.speculator;
        if !speculator.others_wait() {
            return false;
        }
        let turn =
            (speculator.sync_cost * TURN_SYNCS).max(self.expected_stall()).clamp(TURN_LEAST, TURN_MOST);
        speculator.time.saturating_sub(speculator.turn_began) >= turn
    }

    pub(super) fn expected_stall(&self) -> u64 {
        self.threads[self.speculator.lanes[self.speculator.lane].thread].hold.expected_stall()
    }

    pub(super) fn disk(&self) -> Disk {
        let thread = &self.threads[self.speculator.lanes[self.speculator.lane].thread];
        Disk::of(thread.hold.expected_stall(), thread.worth.is_crowded())
    }

    pub(super) fn steps(&self) -> &[Step] {
        self.threads[self.speculator.lanes[self.speculator.lane].thread].steps
    }

    /// Computes, up to the next tick, at which it looks whether that is of use still.
    pub(super) fn goes_on(&mut self, left: Option<u64>) {
        let left = match left {
            Some(left) => left,
            None => {
                let lane = &self.speculator.lanes[self.speculator.lane];
                let is_first = lane.log.is_empty() && self.speculator.at == lane.posted_at;
                let Some(step) = self.steps().get(self.speculator.at).copied() else {
                    return self.ends();
                };
                if !is_first && step.known == Known::Never {
                    return self.ends();
                }
                (if is_first { 0 } else { step.compute }) + self.trace.costs.operation
            }
        };
        let Some(rest) = left.checked_sub(TICK).filter(|rest| *rest > 0) else {
            self.speculator.mode = Mode::Arrived;
            return self.charge(left);
        };
        self.speculator.ticks += 1;
        if self.speculator.ticks > TICKS_WITHOUT_PROGRESS {
            return self.ends();
        }
        self.speculator.mode = Mode::Running(Some(rest));
        self.charge(TICK);
    }

    pub(super) fn operates(&mut self) {
        let now = self.speculator.time;
        let at = self.speculator.at;
        let step = self.steps()[at];
        let is_own = self.speculator.lanes[self.speculator.lane].log.is_empty();
        // What follows from blanks is elsewhere, and so are some of the next.
        let follows_from_blanks = step.known == Known::AfterData && !is_own && !self.speculator.knows;
        let left = if follows_from_blanks { STRAYS } else { self.speculator.strays.saturating_sub(1) };
        self.speculator.strays = left;
        self.speculator.at += 1;
        self.speculator.mode = Mode::Running(None);
        match step.what {
            What::Read { file, place, length } => self.speculates_read(at, file, place, length, is_own),
            What::Name { number } => {
                let (file, page) = page_of_name(number);
                self.cache.ask(file, page, 1, now);
                self.speculator.time = self.cache.ready(file, page).unwrap_or(now).max(now);
                self.speculator.knows = true;
            }
            What::Touch { file, page, .. } => {
                self.speculator.knows = self.cache.is_there(file, page, now);
                if !self.speculator.knows {
                    self.speculator.prefetched += self.cache.ask(file, page, 1, now);
                }
            }
        }
    }

    pub(super) fn speculates_read(&mut self, at: usize, file: u32, place: u64, length: u64, is_own: bool) {
        let now = self.speculator.time;
        let of_file = self.cache.layout.pages(file);
        let (mut first, mut end) = (place / PAGE, (place + length).div_ceil(PAGE).min(of_file));
        let strays = self.speculator.strays > 0;
        if strays {
            // Somewhere else in the file: by what the speculation at hand has found in its memory.
            let count = end.saturating_sub(first);
            let mixed = (u64::from(self.speculator.begun) << 20) ^ (at as u64 + 1);
            first = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % of_file.saturating_sub(count).max(1);
            end = first + count;
        }
        let there = (first..end).take_while(|&page| self.cache.is_there(file, page, now)).count() as u64;
        let moment = self.speculator.now();
        let speculator = &mut self.speculator;
        let mut before = false;
        if there > 0 {
            before = speculator.ledger.found(&mut speculator.depth, file.into(), first, there as u32, moment);
        }
        let missing = end.saturating_sub(first + there);
        if missing > 0 {
            let from = first + there;
            if of_file <= WHOLE_FILE {
                end = of_file;
            } else {
                let ahead = speculator.ahead.entry((false, file)).or_default();
                self.cache.read(ahead, file, from, missing, now);
            }
            let count = (end - from).min(HINT_MOST);
            self.cache.ask(file, from, count, now);
            if !is_own {
                let entered =
                    speculator.ledger.enter(&mut speculator.depth, file.into(), from, count as u32, moment);
                speculator.prefetched += u64::from(entered);
            }
        } else if let Some(page) = end.checked_sub(1) {
            // What is found goes through the file's read-ahead as well.
            let ahead = speculator.ahead.entry((false, file)).or_default();
            self.cache.read(ahead, file, page, 1, now);
        }
        speculator.knows = missing == 0 && !strays;
        if missing > 0 {
            self.charge(MISS);
        }
        self.writes(!strays, missing > 0 || before);
    }

    /// `Run::log`.
    pub(super) fn writes(&mut self, right: bool, prefetched: bool) {
        let disk = self.disk();
        let speculator = &mut self.speculator;
        speculator.ticks = 0;
        let asked_to = speculator.ledger.position();
        let lane = &mut speculator.lanes[speculator.lane];
        if (lane.log.len() as u32) < lane.passed {
            speculator.ledger.forget(&mut speculator.depth, speculator.pages_next, asked_to);
        }
        lane.log.push(Entry { right, prefetched, pages: (speculator.pages_next, asked_to) });
        speculator.pages_next = asked_to;
        let (written, passed) = (lane.log.len() as u32, lane.passed);
        if written == SETTLED_AFTER {
            self.lets_go(true);
        }
        if written.is_multiple_of(SETTLE_EVERY) {
            self.speculator.settle();
        }
        if self.turn_is_over() {
            return self.ends();
        }
        let operations = self.speculator.depth.operations(disk);
        if written.saturating_sub(passed) >= operations {
            self.falls_asleep(written, passed, operations);
        }
    }

    pub(super) fn falls_asleep(&mut self, written: u32, passed: u32, operations: u32) {
        self.lets_go(true);
        if self.speculator.others_wait() {
            return self.ends();
        }
        let wake_at = written.saturating_sub(operations / 2).max(passed + 1).min(written);
        self.speculator.mode = Mode::Asleep { wake_at, passed };
        self.sleeps_on();
    }

    pub(super) fn sleeps_on(&mut self) {
        let held = HELD_MOST.max(self.expected_stall().saturating_mul(HELD_MOST_STALLS));
        self.speculator.time = self.speculator.time.saturating_add(held);
    }

    pub(super) fn wakes_up(&mut self, wake_at: u32, before: u32) {
        if self.is_over() {
            return;
        }
        if self.speculator.others_wait() {
            return self.ends();
        }
        let passed = self.speculator.lanes[self.speculator.lane].passed;
        if passed >= wake_at {
            let disk = self.disk();
            self.speculator.settle();
            self.speculator.depth.grow(disk);
            self.speculator.mode = Mode::Running(None);
        } else if passed == before {
            // The program stands still.
            self.ends();
        } else {
            self.speculator.mode = Mode::Asleep { wake_at, passed };
            self.sleeps_on();
        }
    }
}
