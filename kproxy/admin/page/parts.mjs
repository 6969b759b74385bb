// The parts of the page. Each registers its views, sections and commands with registry.mjs.

import "./exchanges.mjs";
import "./connections.mjs";
import "./topology.mjs";
import "./charts.mjs";
import "./follow.mjs";
import "./again.mjs";
import "./save.mjs";
import "./rail.mjs";
import "./held.mjs";
import "./name.mjs";
import "./rules.mjs";
import "./make_rule.mjs";
import "./captures.mjs";
import "./sources.mjs";
