import { render } from "preact";
render(<p>Duet</p>, document.getElementById("app")!);
