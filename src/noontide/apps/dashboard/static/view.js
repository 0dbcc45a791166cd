// The one place that names the library: Preact with htm's templates. Text in a template is always text, never markup.
export { html, render, useCallback, useEffect, useMemo, useRef, useState } from "/assets/vendor/preact-htm.js";
