/** How the page is built. The theme's boot script is emitted beside the bundle with a hash of
 * its own, because it must run before the first paint and the CSP allows no inline script. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

function bootScript(source: string): Plugin {
  const code = readFileSync(source, "utf8");
  const hash = createHash("sha256").update(code).digest("hex").slice(0, 8);
  const fileName = `assets/boot-${hash}.js`;
  return {
    name: "boot-script",
    apply: "build",
    generateBundle() {
      this.emitFile({ type: "asset", fileName, source: code });
    },
    transformIndexHtml: () => [
      { tag: "script", attrs: { src: `/${fileName}` }, injectTo: "head-prepend" },
    ],
  };
}

export default defineConfig({
  plugins: [bootScript("src/boot.js")],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  resolve: {
    // The package's own "module" entry names a file that it does not ship.
    alias: { "@xterm/headless": "@xterm/headless/lib-headless/xterm-headless.mjs" },
  },
  build: {
    // 0: nothing is inlined as a data: URL, so that the policy can stay narrow.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  server: {
    proxy: {
      "/api": process.env.DUET_URL ?? "http://127.0.0.1:8080",
      "/ws": { target: process.env.DUET_URL ?? "http://127.0.0.1:8080", ws: true },
    },
  },
  test: { environment: "node", include: ["tests/**/*.test.ts"] },
});
