//! Cadences of schedules: parsing, validation and the next run.

use helve_contract::{
    Error, Result,
    jiff::{SignedDuration, Timestamp, Zoned, civil::DateTime, tz::TimeZone},
    ports::{Cadence, ScheduleRules},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cron::CronExpression;

/// The farthest that a schedule may reach.
const MAX_HORIZON: SignedDuration = SignedDuration::from_hours(50 * 366 * 24);
/// The longest interval, in seconds: ten years.
const MAX_INTERVAL_SECS: u64 = 10 * 366 * 24 * 3600;
/// How many gaps between firings are compared with the least interval.
const CHECKED_GAPS: usize = 16;

/// The kind of a cadence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CadenceType {
    /// By a cron expression.
    Cron,
    /// Once.
    Once,
    /// Again and again.
    Interval,
}

impl CadenceType {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cron => "cron",
            Self::Once => "once",
            Self::Interval => "interval",
        }
    }
}

/// Reads a cadence. Whether it may be used is for [`first_run`] to say.
pub fn parse(kind: CadenceType, value: &str, timezone: Option<&str>, rules: &ScheduleRules) -> Result<Cadence> {
    let value = value.trim();
    let (name, tz) = zone(timezone.unwrap_or(&rules.timezone))?;
    Ok(match kind {
        CadenceType::Cron => {
            CronExpression::parse(value)?;
            Cadence::Cron { expression: value.to_owned(), timezone: name }
        }
        CadenceType::Once => Cadence::Once { at: parse_time(value, &tz)? },
        CadenceType::Interval => match value.parse() {
            Ok(every_secs @ 1..=MAX_INTERVAL_SECS) => Cadence::Interval { every_secs },
            _ => {
                return Err(Error::failed(format!(
                    "`{value}` is not an interval; write whole seconds, as in 3600 for an hour"
                )));
            }
        },
    })
}

/// A point in time: with its offset, or as local time of the zone.
fn parse_time(value: &str, tz: &TimeZone) -> Result<Timestamp> {
    if let Ok(time) = value.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(zoned) = value.parse::<Zoned>() {
        return Ok(zoned.timestamp());
    }
    let local = value.parse::<DateTime>().ok().filter(|_| value.contains([':']));
    local.and_then(|local| tz.to_ambiguous_timestamp(local).compatible().ok()).ok_or_else(|| {
        Error::failed(format!("`{value}` is not a time; write it as RFC 3339, as in 2026-03-01T09:00:00+01:00"))
    })
}

/// A zone by its IANA name, and the name as the database spells it.
pub fn zone(name: &str) -> Result<(String, TimeZone)> {
    let known = |it: &TimeZone| it.iana_name().map(str::to_owned);
    let plain = name.len() <= 64
        && !name.is_empty()
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"/_+-".contains(&it));
    if plain
        && let Ok(zone) = TimeZone::get(name)
        && let Some(known) = known(&zone)
    {
        return Ok((known, zone));
    }
    let name: String = name.chars().filter(|it| !it.is_control()).take(64).collect();
    Err(Error::failed(format!("unknown time zone `{name}`; write an IANA name, as in Europe/Berlin or UTC")))
}

/// The first time that a new cadence runs, or why it may not be used.
pub fn first_run(cadence: &Cadence, rules: &ScheduleRules, now: Timestamp) -> Result<Timestamp> {
    let least = SignedDuration::try_from(rules.min_interval).unwrap_or(MAX_HORIZON);
    let never = || Error::failed("this never comes; choose a day that exists");
    let time = next_run(cadence, now, now);
    match cadence {
        Cadence::Once { at } if time.is_none() => {
            return Err(Error::failed(format!(
                "{at} is in the past; it is now {}. Choose a time in the future",
                truncate_to_seconds(now)
            )));
        }
        Cadence::Interval { every_secs } if i64::try_from(*every_secs).is_ok_and(|it| it < least.as_secs()) => {
            return Err(Error::failed(format!(
                "every {every_secs} seconds is too often; the least interval is {} seconds",
                least.as_secs()
            )));
        }
        Cadence::Cron { .. } => {
            let mut last = time.ok_or_else(never)?;
            for _ in 0..CHECKED_GAPS {
                let Some(after) = next_run(cadence, last, last) else { break };
                if after.duration_since(last) < least {
                    return Err(Error::failed(format!(
                        "this runs again after {} seconds; the least interval is {} seconds",
                        after.duration_since(last).as_secs(),
                        least.as_secs()
                    )));
                }
                last = after;
            }
        }
        _ => {}
    }
    let time = time.ok_or_else(never)?;
    if time.duration_since(now) > MAX_HORIZON {
        return Err(Error::failed("this is more than fifty years away; choose a nearer time"));
    }
    Ok(time)
}

/// The first time after `now`. An interval continues in steps from `anchor`, one of its times.
pub fn next_run(cadence: &Cadence, anchor: Timestamp, now: Timestamp) -> Option<Timestamp> {
    match cadence {
        Cadence::Once { at } => Some(*at).filter(|at| *at > now),
        Cadence::Cron { expression, timezone } => {
            let (_, zone) = zone(timezone).ok()?;
            CronExpression::parse(expression).ok()?.next_after(now, &zone)
        }
        Cadence::Interval { every_secs } => {
            let every = i64::try_from(*every_secs).ok().filter(|it| *it > 0)?;
            let passed = now.duration_since(anchor).as_secs();
            let steps = if now < anchor { 0 } else { passed / every + 1 };
            anchor.checked_add(SignedDuration::from_secs(steps.checked_mul(every)?)).ok().map(|at| {
                // The clock went back before the anchor: the next step is at most one interval away.
                at.min(now.checked_add(SignedDuration::from_secs(every)).unwrap_or(at))
            })
        }
    }
}

/// A time without parts of a second.
pub fn truncate_to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A time in the zone of a cadence by cron, with its offset.
pub fn local_time(cadence: &Cadence, time: Timestamp) -> Option<String> {
    let Cadence::Cron { timezone, .. } = cadence else { return None };
    let (_, zone) = zone(timezone).ok()?;
    Some(time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-05T09:00:00Z".parse().unwrap()
    }

    fn said(kind: CadenceType, value: &str, timezone: Option<&str>) -> String {
        let rules = ScheduleRules::default();
        match parse(kind, value, timezone, &rules).and_then(|it| first_run(&it, &rules, now())) {
            Ok(time) => time.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn takes_what_may_run() {
        for (kind, value, zone, want) in [
            (CadenceType::Once, "2026-01-05T09:00:01Z", None, "2026-01-05T09:00:01Z"),
            (CadenceType::Once, "2026-03-01T09:00:00+01:00", None, "2026-03-01T08:00:00Z"),
            (CadenceType::Once, "2026-03-01T09:00", Some("Europe/Berlin"), "2026-03-01T08:00:00Z"),
            (CadenceType::Cron, "* * * * *", None, "2026-01-05T09:01:00Z"),
            (CadenceType::Cron, "0 9 * * *", Some("asia/kolkata"), "2026-01-06T03:30:00Z"),
            (CadenceType::Cron, "0 0 * * *", Some("Etc/GMT+12"), "2026-01-05T12:00:00Z"),
            (CadenceType::Interval, "60", None, "2026-01-05T09:01:00Z"),
        ] {
            assert_eq!(said(kind, value, zone), want);
        }
    }

    #[test]
    fn refuses_what_may_not_and_says_why() {
        for (kind, value, zone, want) in [
            (CadenceType::Once, "2026-01-05T09:00:00Z", None, "2026-01-05T09:00:00Z is in the past; it is now"),
            (CadenceType::Once, "tomorrow", None, "`tomorrow` is not a time; write it as RFC 3339"),
            (CadenceType::Once, "9998-01-01T00:00:00Z", None, "this is more than fifty years away"),
            (CadenceType::Interval, "0", None, "`0` is not an interval"),
            (CadenceType::Interval, "-1", None, "`-1` is not an interval"),
            (CadenceType::Interval, "99999999999999", None, "`99999999999999` is not an interval"),
            (CadenceType::Interval, "59", None, "every 59 seconds is too often; the least interval is 60 seconds"),
            (CadenceType::Cron, "0 0 30 2 *", None, "this never comes"),
            (CadenceType::Cron, "0 9 * * *", Some("../../etc/passwd"), "unknown time zone `../../etc/passwd`"),
            (CadenceType::Cron, "0 9 * * *", Some("America/New_York\n"), "unknown time zone `America/New_York`"),
            (CadenceType::Cron, "0 9 * * *", Some("Mars/Olympus"), "unknown time zone `Mars/Olympus`; write an IANA"),
        ] {
            let said = said(kind, value, zone);
            assert!(said.starts_with(want), "{said}");
        }
    }

    #[test]
    fn the_least_interval_is_found_wherever_it_is() {
        let rules = ScheduleRules { min_interval: std::time::Duration::from_secs(600), ..ScheduleRules::default() };
        let cadence = parse(CadenceType::Cron, "0,59 * * * *", None, &rules).unwrap();
        assert_eq!(
            first_run(&cadence, &rules, now()).unwrap_err().to_string(),
            "this runs again after 60 seconds; the least interval is 600 seconds"
        );
    }

    #[test]
    fn an_interval_keeps_its_steps() {
        let cadence = Cadence::Interval { every_secs: 600 };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(next_run(&cadence, now(), now()), Some(at("2026-01-05T09:10:00Z")));
        assert_eq!(next_run(&cadence, now(), at("2026-01-05T10:07:30Z")), Some(at("2026-01-05T10:10:00Z")));
        assert_eq!(next_run(&cadence, now(), at("2025-01-05T10:07:30Z")), Some(at("2025-01-05T10:17:30Z")));
    }
}
