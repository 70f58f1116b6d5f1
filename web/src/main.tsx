import { render } from "preact";
import "./styles/tokens.css";
import "./styles/layout.css";
import "./styles/timeline.css";
import "./styles/exec.css";
import "./styles/composer.css";
import "./styles/agent.css";
import "./styles/terminal.css";
import "./styles/narrow.css";
import { start } from "./state/app";
import { watchRooms } from "./state/rooms";
import { watchRoute } from "./state/route";
import { Shell } from "./views/shell";

watchRoute();
watchRooms();
start();
render(<Shell />, document.getElementById("app")!);
