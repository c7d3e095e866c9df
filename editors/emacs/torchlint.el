;;; torchlint.el --- torchlint's language server in Emacs  -*- lexical-binding: t; -*-

;; Load this file, and call one of two functions in your init file:
;;   (torchlint-setup-eglot)     for eglot, which comes with Emacs 29
;;   (torchlint-setup-lsp-mode)  for lsp-mode

;;; Code:

(defgroup torchlint nil "Finds habits that make PyTorch code waste the GPU." :group 'tools)

(defcustom torchlint-command '("torchlint" "server")
  "The command that starts the server."
  :type '(repeat string))

(defcustom torchlint-settings '(:diagnosticMode "openFiles" :debounce 100)
  "What the server is told, as a property list."
  :type 'plist)

;; eglot

(declare-function eglot-ensure "eglot")
(declare-function eglot-code-actions "eglot")
(defvar eglot-server-programs)

(defun torchlint-setup-eglot ()
  "Start torchlint with eglot in every Python buffer.
Eglot runs one server for a buffer: this one takes the place of another."
  (with-eval-after-load 'eglot
    (add-to-list 'eglot-server-programs
                 `((python-mode python-ts-mode)
                   . (,@torchlint-command :initializationOptions ,torchlint-settings))))
  (add-hook 'python-mode-hook #'eglot-ensure)
  (add-hook 'python-ts-mode-hook #'eglot-ensure))

(defun torchlint-fix-all ()
  "Make all safe fixes in this buffer, with eglot."
  (interactive)
  (eglot-code-actions (point-min) (point-max) "source.fixAll.torchlint" t))

;; lsp-mode

(declare-function lsp-register-client "lsp-mode")
(declare-function make-lsp-client "lsp-mode")
(declare-function lsp-stdio-connection "lsp-mode")
(declare-function lsp-activate-on "lsp-mode")

(defun torchlint-setup-lsp-mode ()
  "Start torchlint with lsp-mode in Python buffers, beside another server."
  (with-eval-after-load 'lsp-mode
    (lsp-register-client
     (make-lsp-client
      :new-connection (lsp-stdio-connection (lambda () torchlint-command))
      :activation-fn (lsp-activate-on "python")
      :add-on? t
      :initialization-options (lambda () torchlint-settings)
      :server-id 'torchlint))))

(provide 'torchlint)
;;; torchlint.el ends here
