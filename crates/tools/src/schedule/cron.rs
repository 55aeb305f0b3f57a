//! A cron expression of five fields, and the times it names.
//!
//! The usual rules hold: if day of month and day of week are both restricted, either suffices; Sunday is 0 and 7;
//! names of months and days are allowed. A job at fixed times runs once for each. A time skipped by a clock change
//! runs at the change; a repeated time runs the first time. A job with `*` in minutes or hours runs by elapsed time.

use helve_contract::{
    Error, Result,
    jiff::{
        SignedDuration, Timestamp, ToSpan,
        civil::{Date, DateTime},
        tz::{AmbiguousOffset, TimeZone},
    },
};

/// How far ahead a firing is looked for. The 29th of February can be eight years away, a fifth Monday in it forty.
const MAX_YEARS: i16 = 50;
const HINT: &str = "write five fields, minute hour day-of-month month day-of-week, as in `30 9 * * mon-fri`";

/// A cron expression that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronExpression {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// The last day of the month.
    last_day: bool,
    /// The last such weekday of a month.
    last: u64,
    /// The first to fifth such weekday of a month.
    nth: [u64; 5],
    /// Whether either kind of day is enough.
    day_or_weekday: bool,
    /// Whether it runs by the time that passes, and not at fixed times of the day.
    is_interval: bool,
}

/// What a field may hold.
struct CronField {
    name: &'static str,
    low: u8,
    high: u8,
    names: &'static [&'static str],
}

const MINUTE: CronField = CronField { name: "minute", low: 0, high: 59, names: &[] };
const HOUR: CronField = CronField { name: "hour", low: 0, high: 23, names: &[] };
const DAY: CronField = CronField { name: "day of the month", low: 1, high: 31, names: &[] };
const MONTH: CronField = CronField {
    name: "month",
    low: 1,
    high: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: CronField =
    CronField { name: "day of the week", low: 0, high: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl CronExpression {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Err(Error::failed(format!("`{text}` is not a cron expression: {why}; {HINT}")));
        if text.len() > 200 {
            return Err(Error::failed(format!("a cron expression of {} bytes is too long; {HINT}", text.len())));
        }
        let lower = text.trim().to_ascii_lowercase();
        let plain = match lower.as_str() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other if other.starts_with('@') => {
                return wrong("the words are @hourly, @daily, @weekly, @monthly and @yearly");
            }
            other => other,
        };
        let fields: Vec<&str> = plain.split_ascii_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            let seconds = if fields.len() == 6 { "; seconds and years have no field" } else { "" };
            return wrong(&format!("it has {} fields{seconds}", fields.len()));
        };
        let mut cron = Self {
            minutes: 0,
            hours: 0,
            days: 0,
            months: 0,
            weekdays: 0,
            last_day: false,
            last: 0,
            nth: [0; 5],
            day_or_weekday: !day.starts_with(['*', '?']) && !weekday.starts_with(['*', '?']),
            is_interval: minute.starts_with('*') || hour.starts_with('*'),
        };
        let read = cron.read(minute, hour, day, month, weekday);
        read.map_or_else(|why| wrong(&why), |()| Ok(cron))
    }

    fn read(&mut self, minute: &str, hour: &str, day: &str, month: &str, weekday: &str) -> Result<(), String> {
        self.minutes = MINUTE.set(minute)?;
        self.hours = HOUR.set(hour)?;
        self.months = MONTH.set(month)?;
        for item in day.split(',') {
            match item {
                "?" => self.days |= DAY.set("*")?,
                "l" => self.last_day = true,
                item => self.days |= DAY.item(item)?,
            }
        }
        for item in weekday.split(',') {
            if item == "?" {
                self.weekdays |= WEEKDAY.set("*")?;
            } else if let Some((which, number)) = item.split_once('#') {
                let number = number.parse::<usize>().ok().filter(|it| (1..=5).contains(it));
                let Some(number) = number else { return Err(format!("in `{item}`, 1 to 5 comes after #")) };
                self.nth[number - 1] |= fold_sunday(1 << WEEKDAY.value(which)?);
            } else if let Some(which) = item.strip_suffix('l').filter(|it| !it.is_empty()) {
                self.last |= fold_sunday(1 << WEEKDAY.value(which)?);
            } else {
                self.weekdays |= WEEKDAY.item(item)?;
            }
        }
        self.weekdays = fold_sunday(self.weekdays);
        Ok(())
    }

    /// The first firing after a time, in a zone. `None`: there is none in the next fifty years.
    pub fn next_after(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_interval { self.next_interval(time, zone) } else { self.next_fixed(time, zone) }
    }

    /// Fixed times of the day, each once.
    fn next_fixed(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(time);
        let mut date = start.date();
        let horizon = date.year().checked_add(MAX_YEARS)?;
        // After clocks go back, times of the previous day may map to later moments; before a skip, skipped times come
        // first. Scanning each day from its start handles both.
        loop {
            date = self.day(date, horizon)?;
            for hour in bits(self.hours) {
                for minute in bits(self.minutes) {
                    let moment = resolve_local(date.at(hour, minute, 0, 0), zone)?;
                    if moment > time {
                        return Some(moment);
                    }
                }
            }
            date = date.tomorrow().ok()?;
        }
    }

    /// Minute by minute of the time that passes, with long steps over what does not fit.
    fn next_interval(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut at = Timestamp::from_second(time.as_second().div_euclid(60) * 60 + 60).ok()?;
        let horizon = zone.to_datetime(at).date().year().checked_add(MAX_YEARS)?;
        loop {
            let local = zone.to_datetime(at);
            let date = self.day(local.date(), horizon)?;
            let (hour, minute) = (local.hour(), local.minute());
            let next = if date != local.date() {
                zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible().ok()?
            } else if !has(self.hours, hour) {
                at.checked_add(i64::from(60 - minute).minutes()).ok()?
            } else if !has(self.minutes, minute) {
                at.checked_add(1.minute()).ok()?
            } else {
                return Some(at);
            };
            // An unusual zone must not cause an endless loop.
            at = if next > at { next } else { at.checked_add(1.minute()).ok()? };
        }
    }

    /// The first day from this one on that fits.
    fn day(&self, mut date: Date, horizon: i16) -> Option<Date> {
        while date.year() <= horizon {
            if !has(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
            } else if self.matches_date(date) {
                return Some(date);
            } else {
                date = date.tomorrow().ok()?;
            }
        }
        None
    }

    fn matches_date(&self, date: Date) -> bool {
        let by_month = has(self.days, date.day()) || (self.last_day && date.day() == date.days_in_month());
        let weekday = date.weekday().to_sunday_zero_offset();
        let week = usize::from((date.day() - 1).unsigned_abs() / 7);
        let by_week = has(self.weekdays, weekday)
            || has(self.nth[week], weekday)
            || (has(self.last, weekday) && date.day() + 7 > date.days_in_month());
        if self.day_or_weekday { by_month || by_week } else { by_month && by_week }
    }
}

impl CronField {
    fn set(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |all, item| Ok(all | self.item(item)?))
    }

    /// `*`, `5`, `1-5`, each with a step perhaps.
    fn item(&self, item: &str) -> Result<u64, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(item, step)?)),
            None => (item, None),
        };
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (self.low, self.high),
            Some((low, high)) => (self.value(low)?, self.end(high)?),
            // A start and a step, without an end: up to the last one.
            None if step.is_some() => (self.value(range)?, self.high),
            None => (self.value(range)?, self.value(range)?),
        };
        if low > high {
            return Err(format!("in the {}, `{range}` runs backwards", self.name));
        }
        // Sunday is in `*` already.
        let high = if range == "*" && self.high == 7 { 6 } else { high };
        Ok((low..=high).step_by(usize::from(step.unwrap_or(1))).fold(0, |all, value| all | 1 << value))
    }

    fn step(&self, item: &str, step: &str) -> Result<u8, String> {
        let span = self.high - self.low;
        match step.parse::<u8>() {
            Ok(step) if (1..=span.max(1)).contains(&step) && step_is_plain(item) => Ok(step),
            _ => Err(format!("the step in `{item}` must be 1 to {span} for the {}", self.name)),
        }
    }

    /// The end of a range: `sat-sun` ends on the seventh day.
    fn end(&self, text: &str) -> Result<u8, String> {
        if self.high == 7 && text == "sun" { Ok(7) } else { self.value(text) }
    }

    fn value(&self, text: &str) -> Result<u8, String> {
        let named = self.names.iter().position(|name| *name == text).map(|at| at as u8 + u8::from(self.high == 12));
        let number = text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse::<u8>().ok()).flatten();
        named
            .or(number)
            .filter(|it| (self.low..=self.high).contains(it))
            .ok_or_else(|| format!("`{text}` is no {} ({} to {})", self.name, self.low, self.high))
    }
}

/// `+5` parses as a number, and is none here.
fn step_is_plain(item: &str) -> bool {
    !item.contains('+')
}

/// The seventh day is Sunday.
fn fold_sunday(weekdays: u64) -> u64 {
    (weekdays | weekdays >> 7) & 0x7f
}

fn has(set: u64, value: i8) -> bool {
    set >> value & 1 == 1
}

fn bits(set: u64) -> impl Iterator<Item = i8> {
    (0..60).filter(move |at| has(set, *at))
}

/// When a local time is: the first of two, and the end of the gap for one that is skipped.
fn resolve_local(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { .. } => {
            let before = ambiguous.earlier().ok()?.checked_sub(SignedDuration::from_secs(1)).ok()?;
            zone.following(before).next().map(|change| change.timestamp())
        }
        _ => ambiguous.compatible().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next firings, in local time with the offset.
    fn next(expression: &str, zone: &str, from: &str, count: usize) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let cron = CronExpression::parse(expression).unwrap();
        let mut at: Timestamp = from.parse().unwrap();
        let mut all = Vec::new();
        for _ in 0..count {
            at = cron.next_after(at, &zone).unwrap();
            all.push(at.to_zoned(zone.clone()).strftime("%d %H:%M%z").to_string());
        }
        all.join(", ")
    }

    #[test]
    fn a_daily_job_runs_once_a_day_whatever_the_clocks_do() {
        for (zone, from, want) in [
            // Clocks go from 02:00 to 03:00: half past two is skipped, and runs when they do.
            ("Europe/Berlin", "2026-03-28T00:00:00Z", "28 02:30+0100, 29 03:00+0200, 30 02:30+0200"),
            // They go back from 03:00 to 02:00: the first half past two counts.
            ("Europe/Berlin", "2026-10-24T00:00:00Z", "24 02:30+0200, 25 02:30+0200, 26 02:30+0100"),
            // Half an hour, forth and back.
            ("Australia/Lord_Howe", "2026-10-02T20:00:00Z", "04 02:30+1100, 05 02:30+1100, 06 02:30+1100"),
            ("Australia/Lord_Howe", "2026-04-03T20:00:00Z", "05 02:30+1030, 06 02:30+1030, 07 02:30+1030"),
            ("Asia/Kathmandu", "2026-10-03T00:00:00Z", "04 02:30+0545, 05 02:30+0545, 06 02:30+0545"),
            // A day that was left out as a whole.
            ("Pacific/Apia", "2011-12-29T08:00:00Z", "29 02:30-1000, 31 00:00+1400, 31 02:30+1400"),
        ] {
            assert_eq!(next("30 2 * * *", zone, from, 3), want, "{zone}");
        }
    }

    #[test]
    fn a_job_every_half_hour_keeps_its_pace() {
        assert_eq!(
            next("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", 3),
            "29 01:30+0100, 29 03:00+0200, 29 03:30+0200"
        );
        assert_eq!(
            next("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:15:00Z", 4),
            "25 02:30+0200, 25 02:00+0100, 25 02:30+0100, 25 03:00+0100"
        );
    }

    #[test]
    fn midnight_that_is_skipped_runs_at_the_first_moment_of_the_day() {
        assert_eq!(next("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", 2), "04 01:00-0200, 05 00:00-0200");
        assert_eq!(next("0 * 4 11 *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", 1), "04 01:00-0200");
    }

    #[test]
    fn either_day_is_enough_where_both_are_restricted() {
        assert_eq!(
            next("0 0 13 * 5", "UTC", "2026-01-01T00:00:00Z", 4),
            "02 00:00+0000, 09 00:00+0000, 13 00:00+0000, 16 00:00+0000"
        );
        assert_eq!(next("0 0 1-7 * */7", "UTC", "2026-01-01T00:00:00Z", 2), "04 00:00+0000, 01 00:00+0000");
    }

    #[test]
    fn reads_what_is_commonly_written() {
        for (a, b) in [
            ("0 12 * * 7", "0 12 * * sun"),
            ("0 12 * * SAT-SUN", "0 12 * * 6,0"),
            ("0 12 * * 5-7", "0 12 * * 0,5,6"),
            ("5/20 * * * *", "5,25,45 * * * *"),
            ("0 0 1 JAN,jul *", "0 0 1 1,7 *"),
            ("@daily", "0 0 * * *"),
            ("0 9 ? * mon", "0 9 * * 1"),
        ] {
            let (mut a, b) = (CronExpression::parse(a).unwrap(), CronExpression::parse(b).unwrap());
            (a.is_interval, a.day_or_weekday) = (b.is_interval, b.day_or_weekday);
            assert_eq!(a, b);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, why) in [
            ("* * * *", "it has 4 fields"),
            ("0 0 12 * * *", "it has 6 fields; seconds and years have no field"),
            ("60 * * * *", "`60` is no minute (0 to 59)"),
            ("* * * 13 *", "`13` is no month (1 to 12)"),
            ("*/0 * * * *", "the step in `*/0` must be 1 to 59 for the minute"),
            ("*/90 * * * *", "the step in `*/90` must be 1 to 59 for the minute"),
            ("5-1 * * * *", "in the minute, `5-1` runs backwards"),
            ("1,,2 * * * *", "`` is no minute (0 to 59)"),
            ("* * * * mon-xyz", "`xyz` is no day of the week (0 to 7)"),
            ("* * * * 1#6", "in `1#6`, 1 to 5 comes after #"),
            ("@reboot", "the words are @hourly, @daily, @weekly, @monthly and @yearly"),
        ] {
            let said = CronExpression::parse(text).unwrap_err().to_string();
            assert_eq!(said, format!("`{text}` is not a cron expression: {why}; {HINT}"));
        }
    }

    #[test]
    fn a_day_that_never_comes_is_found_out() {
        let from = "2026-01-01T00:00:00Z".parse().unwrap();
        for never in ["0 0 30 2 *", "0 0 31 4,6 *", "* * 31 2 *"] {
            assert_eq!(CronExpression::parse(never).unwrap().next_after(from, &TimeZone::UTC), None, "{never}");
        }
        let leap = CronExpression::parse("0 0 29 2 *")
            .unwrap()
            .next_after("2096-03-01T00:00:00Z".parse().unwrap(), &TimeZone::UTC);
        assert_eq!(leap.unwrap().to_string(), "2104-02-29T00:00:00Z");
    }
}
