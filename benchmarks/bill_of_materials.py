"""What geonorm and its tools consist of, as a CycloneDX document: for scanners, and for who must know what is shipped.

``python -m benchmarks.bill_of_materials FILE``; ``make dist`` writes it beside the wheel. It lists the packages of this
environment: required are those that the layers need, optional those of the lab and the plots, excluded the tools of
development. The compiled kernels contain nothing of others.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

USED = {"required": [""], "optional": ["lab", "plots"], "excluded": ["test", "compat", "lint", "docs", "dist"]}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(of: Distribution, extras: list[str]) -> dict[str, list[str]]:
    """The packages that a distribution needs here, with the extras that it wants of them."""
    found: dict[str, list[str]] = {}
    for line in of.requires or []:
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
            found[normal(one.name)] = sorted({*found.get(normal(one.name), []), *one.extras})
    return found


def everything(of: str, extras: list[str]) -> dict[str, Distribution]:
    """What a distribution needs directly and through others, as far as it is installed."""
    found: dict[str, Distribution] = {}
    seen, left = set(), [(of, ["", *extras])]
    while left:
        name, wanted = left.pop()
        if (name, *wanted) in seen:
            continue
        seen.add((name, *wanted))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # for another system or Python
            continue
        left += [(other, ["", *more]) for other, more in needs(found[name], wanted).items()]
    return found


def component(found: Distribution, scope: str) -> dict[str, Any]:
    meta = found.metadata
    version = found.version.partition("+")[0]  # the registry's, also of a build of one's own
    address = f"pkg:pypi/{normal(meta['Name'])}@{version}"
    named = meta.get("License-Expression") or meta.get("License") or ""
    if not named or "\n" in named:  # nothing, or the whole text
        classes = [line.rpartition(" :: ")[2] for line in meta.get_all("Classifier") or [] if line[:9] == "License :"]
        named = classes[-1] if classes else ""
    licence = [{"license": {"name": named}}] if named else []
    return {
        "type": "library",
        "bom-ref": address,
        "name": normal(meta["Name"]),
        "version": version,
        "scope": scope,
        **({"licenses": licence} if licence else {}),
        "purl": address,
    }


def bill() -> dict[str, Any]:
    """The document; of the same environment always the same."""
    parts: dict[str, dict[str, Any]] = {}
    packages = everything("geonorm", [])
    for scope, extras in USED.items():
        found = everything("geonorm", extras)
        packages |= found
        for name, one in found.items():
            parts.setdefault(name, component(one, scope))
    own = parts.pop("geonorm")
    del own["scope"]
    graph = []
    for name in ["geonorm", *sorted(parts)]:
        on = sorted(parts[other]["bom-ref"] for other in needs(packages[name], [""]) if other in parts)
        graph.append({"ref": (own if name == "geonorm" else parts[name])["bom-ref"], "dependsOn": on})
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [parts[name] for name in sorted(parts)],
        "dependencies": graph,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=2) + "\n", encoding="utf-8")
