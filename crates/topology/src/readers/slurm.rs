//! Slurm's `topology.conf` of the tree plug-in.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::{Fault, ReadError};
use crate::fabric::{Fabric, VertexId};
use crate::hostlist;

const LINES: &str =
    "SwitchName=<name> with Nodes=<host list> or Switches=<host list>, and LinkSpeed=<number>";
const KEYS: &str = "SwitchName, Nodes, Switches, LinkSpeed";

/// One `SwitchName=` line.
#[derive(Default)]
struct SwitchLine<'a> {
    line: usize,
    name: &'a str,
    nodes: &'a str,
    switches: &'a str,
}

pub(super) fn read(text: &str) -> Result<Fabric, ReadError> {
    let logical = join_continued(text);
    let mut lines = Vec::new();
    for (line, content) in &logical {
        let content = content.split('#').next().unwrap_or_default();
        if !content.trim().is_empty() {
            lines.push(parse_line(*line, content)?);
        }
    }
    if lines.is_empty() {
        return Err(ReadError::at(1, Fault::Nothing { allowed: LINES }));
    }
    build(&lines)
}

/// Lines with their numbers; a backslash at a line's end joins the next one to it.
fn join_continued(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, content) in text.lines().enumerate() {
        let (content, more) = match content.trim_end().strip_suffix('\\') {
            Some(head) => (head, true),
            None => (content, false),
        };
        match joined.last_mut().filter(|_| continues) {
            Some((_, whole)) => whole.push_str(content),
            None => joined.push((index + 1, content.to_string())),
        }
        continues = more;
    }
    joined
}

fn parse_line(line: usize, content: &str) -> Result<SwitchLine<'_>, ReadError> {
    let not_understood = |found: &str, allowed| {
        ReadError::at(line, Fault::NotUnderstood { found: found.to_string(), allowed })
    };
    let mut parsed = SwitchLine { line, ..SwitchLine::default() };
    for word in content.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| not_understood(word, LINES))?;
        if value.is_empty() {
            return Err(not_understood(word, "a value after `=`"));
        }
        // Slurm ignores the case of keys.
        match key.to_ascii_lowercase().as_str() {
            "switchname" => parsed.name = value,
            "nodes" => parsed.nodes = value,
            "switches" => parsed.switches = value,
            "linkspeed" => {}
            _ => return Err(not_understood(key, KEYS)),
        }
    }
    let whole = content.trim();
    if parsed.name.is_empty() || (parsed.nodes.is_empty() && parsed.switches.is_empty()) {
        return Err(not_understood(whole, LINES));
    }
    if parsed.name.contains(['[', ']', ',']) {
        return Err(not_understood(parsed.name, "the name of one switch"));
    }
    Ok(parsed)
}

fn build(lines: &[SwitchLine<'_>]) -> Result<Fabric, ReadError> {
    let mut fabric = Fabric::new();
    let mut switches: BTreeMap<&str, VertexId> = BTreeMap::new();
    for line in lines {
        let id = fabric.add_switch(line.name).map_err(|fault| ReadError::at(line.line, fault))?;
        switches.insert(line.name, id);
    }
    for line in lines {
        let fault = |fault: Fault| ReadError::at(line.line, fault);
        let above = switches[line.name];
        for name in names(line.switches).map_err(fault)? {
            let below = *switches.get(name.as_str()).ok_or_else(|| {
                fault(Fault::Undescribed { name, allowed: "the SwitchName of a line" })
            })?;
            fabric.add_link(above, below).map_err(|error| fault(error.into()))?;
        }
        for name in names(line.nodes).map_err(fault)? {
            // A node may be on several leaf switches; Slurm lists it once for each.
            let host = match fabric.find(&name).filter(|_| !switches.contains_key(name.as_str())) {
                Some(host) => host,
                None => fabric.add_host(&name).map_err(|error| fault(error.into()))?,
            };
            fabric.add_link(above, host).map_err(|error| fault(error.into()))?;
        }
    }
    Ok(fabric)
}

fn names(expression: &str) -> Result<Vec<String>, Fault> {
    if expression.is_empty() {
        return Ok(Vec::new());
    }
    Ok(hostlist::expand(expression)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::FabricError;
    use crate::hostlist::HostlistError;

    const MANUAL: &str = "\
# two leaves below one spine
SwitchName=s0 Nodes=dev[0-5] LinkSpeed=100
switchname=s1 \\
    nodes=dev[6-11]   # the second rack
SwitchName=s2 Switches=s[0-1]
";

    #[test]
    fn a_two_level_tree_is_read() {
        let fabric = read(MANUAL).unwrap();
        assert_eq!(fabric.vertices().len(), 3 + 12);
        let neighbours = |name: &str| fabric.neighbours(fabric.find(name).unwrap()).len();
        assert_eq!(["s0", "s1", "s2", "dev0", "dev11"].map(neighbours), [7, 7, 2, 1, 1]);
    }

    #[test]
    fn mistakes_are_found_on_their_line() {
        let undescribed = |name: &str| Fault::Undescribed {
            name: name.into(),
            allowed: "the SwitchName of a line",
        };
        let other = |found: &str, allowed| Fault::NotUnderstood { found: found.into(), allowed };
        let cases = [
            ("\n# nothing\n", 1, Fault::Nothing { allowed: LINES }),
            ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c", 2, undescribed("c")),
            ("SwitchName=a Nodes=n1\nInclude other", 2, other("Include", LINES)),
            ("BlockName=b Nodes=n1", 1, other("BlockName", KEYS)),
            ("SwitchName=a", 1, other("SwitchName=a", LINES)),
            ("SwitchName=a Nodes=", 1, other("Nodes=", "a value after `=`")),
            ("SwitchName=s[0-1] Nodes=n1", 1, other("s[0-1]", "the name of one switch")),
            ("\nSwitchName=a Nodes=n[1-", 2, HostlistError::Brackets("n[1-".into()).into()),
            (
                "SwitchName=a Nodes=n\nSwitchName=a Nodes=m",
                2,
                FabricError::VertexTwice("a".into()).into(),
            ),
            (
                "SwitchName=a Nodes=n\nSwitchName=b Nodes=a",
                2,
                FabricError::VertexTwice("a".into()).into(),
            ),
            ("SwitchName=a Switches=a", 1, FabricError::LinkToItself("a".into()).into()),
        ];
        for (text, line, fault) in cases {
            assert_eq!(read(text), Err(ReadError { line, fault }), "{text}");
        }
    }

    #[test]
    fn a_continued_line_is_numbered_by_its_beginning() {
        let error = read("SwitchName=a Nodes=n1\nSwitchName=b \\\n \\\n Bad=1").unwrap_err();
        assert_eq!(error.line, 2);
    }
}
