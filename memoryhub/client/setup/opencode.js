// Written by `memory-hub setup opencode`: passes OpenCode's events to `memory-hub hook`, and its answers to the model.
import { spawn } from "node:child_process"

const COMMAND = ["memory-hub", "hook", "opencode"]
const ENVIRONMENT = {}
const SECONDS = 5
const ACTIONS = ["bash", "edit", "write", "apply_patch"]

// Never fails: without an answer in time it is "".
function run(event, input) {
  return new Promise((resolve) => {
    let printed = ""
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), event], {
      env: { ...process.env, ...ENVIRONMENT },
      stdio: ["pipe", "pipe", "ignore"],
      timeout: SECONDS * 1000,
    })
    child.on("error", () => resolve(""))
    child.on("close", () => resolve(printed))
    child.stdout.on("data", (part) => (printed += part))
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(input))
  })
}

function contextOf(printed) {
  try {
    return JSON.parse(printed).hookSpecificOutput.additionalContext
  } catch {
    return ""
  }
}

export const MemoryHub = async ({ directory }) => {
  const parents = new Map() // the session of a sub-agent, and the session that started it
  const started = new Set()
  const answers = new Map() // the last text of each session
  const notes = new Map() // what is given with the result of a call, because nothing can be added before it
  let last = Promise.resolve("")

  function inputOf(session, fields) {
    let root = session
    while (parents.has(root)) root = parents.get(root)
    const agent = root === session ? {} : { agent_id: session }
    return { session_id: root, ...agent, cwd: directory, ...fields }
  }

  // One event after another, in their order.
  function send(event, session, fields) {
    last = last.then(() => run(event, inputOf(session, fields)))
    return last
  }

  async function contexts(session, prompt) {
    const found = []
    if (!started.has(session)) {
      started.add(session)
      found.push(contextOf(await send("session.created", session, {})))
    }
    found.push(contextOf(await send("chat.message", session, { prompt })))
    return found.filter(Boolean)
  }

  return {
    event: async ({ event }) => {
      const { sessionID, info, part } = event.properties
      if (event.type === "session.created" && info.parentID) parents.set(info.id, info.parentID)
      if (event.type === "session.compacted") void send(event.type, sessionID, { trigger: "compacted" })
      if (event.type === "session.idle" && !parents.has(sessionID)) {
        void send(event.type, sessionID, { text: answers.get(sessionID) })
        answers.delete(sessionID)
      }
      // A tool that fails reaches no "tool.execute.after".
      if (event.type === "message.part.updated" && part.type === "tool" && part.state.status === "error") {
        const call = { tool_name: part.tool, tool_use_id: part.callID, tool_input: part.state.input }
        notes.delete(part.callID)
        void send(event.type, part.sessionID, { ...call, error: part.state.error })
      }
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      if (parents.has(sessionID)) return
      const texts = parts.filter((part) => part.type === "text" && !part.synthetic)
      const found = await contexts(sessionID, texts.map((part) => part.text).join("\n"))
      const id = texts.at(-1)?.id ?? `prt_${message.id.slice(4)}`
      for (const [at, text] of found.entries())
        parts.push({ id: `${id}${at}`, sessionID, messageID: message.id, type: "text", synthetic: true, text })
    },
    // Recorded nowhere, so it need not wait for the events before it.
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      if (!ACTIONS.includes(tool)) return
      const call = { tool_name: tool, tool_use_id: callID, tool_input: args }
      const note = contextOf(await run("tool.execute.before", inputOf(sessionID, call)))
      if (note) notes.set(callID, note)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, result) => {
      const { output, content, metadata } = result
      const call = { tool_name: tool, tool_use_id: callID, tool_input: args }
      const tool_response = { output: output ?? content, exit: metadata?.exit }
      void send("tool.execute.after", sessionID, { ...call, tool_response })
      if (notes.has(callID) && typeof output === "string") result.output = `${output}\n\n${notes.get(callID)}`
      notes.delete(callID)
    },
    // The summary keeps what was in progress: a turn goes on after it without a message.
    "experimental.session.compacting": async ({ sessionID }, { context }) => {
      if (parents.has(sessionID)) return
      const opening = contextOf(await send("session.created", sessionID, {}))
      if (opening) context.push(opening)
    },
    "experimental.text.complete": async ({ sessionID }, { text }) => void answers.set(sessionID, text),
    dispose: async () => {
      for (const session of started) send("dispose", session, { reason: "exit" })
      await last
    },
  }
}
