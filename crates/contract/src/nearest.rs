//! Suggestions for names that do not exist.

/// The names that are most similar to `wanted`, best first, at most three.
///
/// Differences in case, `_` and `-` count little. A name that contains the other one counts as similar.
pub fn closest_names<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = normalize_name(wanted);
    if plain.is_empty() {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let other = normalize_name(name);
            let contains = other.len() >= 3 && plain.len() >= 3 && (plain.contains(&other) || other.contains(&plain));
            let steps = edit_distance(&plain, &other);
            let allowed = plain.chars().count().max(other.chars().count()) / 3;
            if plain == other {
                Some((0, name))
            } else if steps <= allowed {
                Some((steps, name))
            } else if contains {
                Some((allowed + 1, name))
            } else {
                None
            }
        })
        .collect();
    near.sort_by_key(|(steps, _)| *steps);
    near.into_iter().map(|(_, name)| name).take(3).collect()
}

fn normalize_name(name: &str) -> String {
    name.chars().filter(|it| !matches!(it, '_' | '-' | ' ')).flat_map(char::to_lowercase).take(200).collect()
}

/// The number of edits between two words. A swap of adjacent letters counts as one.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let [before, last, row] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let swap = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + swap);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let names = ["Read", "Write", "Edit", "Bash", "WebFetch", "file_path"];
        assert_eq!(closest_names("raed", names), ["Read"]);
        assert_eq!(closest_names("filePath", names), ["file_path"]);
        assert_eq!(closest_names("web_fetch", names), ["WebFetch"]);
        assert_eq!(closest_names("zzz", names), [""; 0]);
    }
}
